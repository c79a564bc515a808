package xds

import (
	mathbits "math/bits"
	"strings"
	"sync"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// resourceName is what the name of a resource stands for: an app wherever it is, "orders.shop",
// or an app in one cluster, "orders.shop.west".
type resourceName struct {
	app     catalog.App
	cluster string // empty: wherever the selection leads
	other   string // the name, if it is no app's
}

func parseName(s string) resourceName {
	id, rest, dotted := strings.Cut(s, ".")
	namespace, cluster, inCluster := strings.Cut(rest, ".")
	n := resourceName{app: catalog.App{Namespace: namespace, ID: id}, cluster: cluster}
	if !dotted || n.app.CheckHost() != nil || inCluster && catalog.CheckCluster(cluster) != nil {
		return resourceName{other: s}
	}
	return n
}

func (n resourceName) plain() bool { return n.cluster == "" && n.other == "" }

func (n resourceName) String() string {
	if n.other != "" {
		return n.other
	}
	s := n.app.ID + "." + n.app.Namespace
	if n.cluster != "" {
		s += "." + n.cluster
	}
	return s
}

// index numbers the apps that clients follow, so that a stream keeps a bit for each rather than a
// name. A number is free again once no stream has it.
type index struct {
	mu      sync.RWMutex
	numbers map[catalog.App]uint32
	apps    []catalog.App // by number
	users   []int32       // by number
	free    []uint32
}

func newIndex() *index { return &index{numbers: map[catalog.App]uint32{}} }

// acquire returns the number of an app, which is its own until it is released as often.
func (x *index) acquire(app catalog.App) uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, ok := x.numbers[app]
	if !ok {
		if last := len(x.free) - 1; last >= 0 {
			n, x.free = x.free[last], x.free[:last]
		} else {
			n = uint32(len(x.users))
			x.users, x.apps = append(x.users, 0), append(x.apps, catalog.App{})
		}
		x.apps[n] = app
		x.numbers[app] = n
	}
	x.users[n]++
	return n
}

func (x *index) release(app catalog.App) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.numbers[app]
	if x.users[n]--; x.users[n] == 0 {
		delete(x.numbers, app)
		x.apps[n] = catalog.App{}
		x.free = append(x.free, n)
	}
}

// number is that of an app that some stream follows.
func (x *index) number(app catalog.App) (n uint32, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n, ok = x.numbers[app]
	return n, ok
}

func (x *index) app(n uint32) catalog.App {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.apps[n]
}

// bits is a set of numbers.
type bits []uint64

func (b bits) has(n uint32) bool { return int(n>>6) < len(b) && b[n>>6]&(1<<(n&63)) != 0 }

func (b *bits) set(n uint32) {
	for int(n>>6) >= len(*b) {
		*b = append(*b, 0)
	}
	(*b)[n>>6] |= 1 << (n & 63)
}

func (b bits) clear(n uint32) {
	if b.has(n) {
		b[n>>6] &^= 1 << (n & 63)
	}
}

// following is which resources of a type a client follows.
type following struct {
	index    *index
	wildcard bool
	apps     bits // by their plain names
	numbers  int  // in apps
	others   map[resourceName]struct{}
}

func (f *following) has(n resourceName) bool {
	if f.wildcard {
		return true
	}
	if !n.plain() {
		_, ok := f.others[n]
		return ok
	}
	number, ok := f.index.number(n.app)
	return ok && f.apps.has(number)
}

// named tells whether the client has asked for a resource by its name.
func (f *following) named(n resourceName) bool {
	all := f.wildcard
	f.wildcard = false
	defer func() { f.wildcard = all }()
	return f.has(n)
}

func (f *following) add(n resourceName) {
	switch {
	case f.named(n):
	case !n.plain():
		if f.others == nil {
			f.others = map[resourceName]struct{}{}
		}
		f.others[n] = struct{}{}
	default:
		f.apps.set(f.index.acquire(n.app))
		f.numbers++
	}
}

func (f *following) remove(n resourceName) {
	switch {
	case !f.named(n):
	case !n.plain():
		delete(f.others, n)
	default:
		number, _ := f.index.number(n.app)
		f.apps.clear(number)
		f.numbers--
		f.index.release(n.app)
	}
}

// count is how many names the client has asked for.
func (f *following) count() int { return f.numbers + len(f.others) }

// all yields every name that the client has asked for.
func (f *following) all(yield func(resourceName) bool) {
	for n := range f.others {
		if !yield(n) {
			return
		}
	}
	for i, word := range f.apps {
		for ; word != 0; word &= word - 1 {
			number := uint32(i<<6 + mathbits.TrailingZeros64(word))
			if !yield(resourceName{app: f.index.app(number)}) {
				return
			}
		}
	}
}

// close gives all numbers back.
func (f *following) close() {
	for n := range f.all {
		if n.plain() {
			f.index.release(n.app)
		}
	}
	f.apps, f.others, f.numbers = nil, nil, 0
}
