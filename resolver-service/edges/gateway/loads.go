package gateway

import "sync"

// loads counts the connections that run to each instance, through this gateway, those
// being made included. An instance without one takes no room.
type loads struct {
	mu   sync.Mutex
	open map[string]int // by "host:port"
}

func newLoads() *loads { return &loads{open: make(map[string]int)} }

// add counts a connection in. Who adds it removes it, by whatever way it ends.
func (l *loads) add(instance string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[instance]++
}

// remove counts a connection out; "" is none.
func (l *loads) remove(instance string) {
	if instance == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[instance]--; l.open[instance] <= 0 {
		delete(l.open, instance)
	}
}

// lighter is the one of two instances that has fewer; a where they are even.
func (l *loads) lighter(a, b string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[b] < l.open[a] {
		return b
	}
	return a
}
