package dapr

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"github.com/dapr/components-contrib/configuration"
	"github.com/dapr/components-contrib/metadata"
)

// hints is what a subscription has told since it was last asked. It holds at most
// mostHints paths, however much is told.
type hints struct {
	news chan struct{} // has one element while there is something to take

	mu     sync.Mutex
	paths  map[string]bool
	many   bool   // more than could be held: everything may have changed
	failed string // why the subscription may have ended
}

const mostHints = 1000

func newHints() *hints { return &hints{news: make(chan struct{}, 1), paths: map[string]bool{}} }

func (h *hints) add(paths []string, failed string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, path := range paths {
		h.paths[path] = true
	}
	if len(h.paths) > mostHints {
		h.many = true
		clear(h.paths)
	}
	if failed != "" {
		h.failed = failed
	}
	select {
	case h.news <- struct{}{}:
	default:
	}
}

func (h *hints) take() (paths map[string]bool, many bool, failed string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	paths, many, failed = h.paths, h.many, h.failed
	h.paths, h.many, h.failed = map[string]bool{}, false, ""
	return paths, many, failed
}

// listener is an engine that is told by its server's own protocol.
type listener interface {
	// listen has the hints told what changes, until stop, which waits for the end of it.
	listen(ctx context.Context, to *hints) (stop func(), err error)
}

// listen subscribes: by the engine where it can, else by Dapr's interface.
func (l *lease) listen(ctx context.Context, to *hints) (stop func(), err error) {
	if own, ok := l.engine.(listener); ok {
		return own.listen(ctx, to)
	}
	return listenByDapr(ctx, l.settings, to)
}

// listenByDapr subscribes with a store of Dapr of its own: to close it is the one way to be
// rid of all that belongs to a subscription.
func listenByDapr(ctx context.Context, s settings, to *hints) (stop func(), err error) {
	b := s.logger()
	b.failed = func(text string) { to.add(nil, text) }
	store := newStore(s.component.kind, b)
	initial, done := context.WithTimeout(ctx, 2*requestTimeout)
	defer done()
	err = store.Init(initial, configuration.Metadata{Base: metadata.Base{Name: s.component.name, Properties: maps.Clone(s.component.properties)}})
	if err != nil {
		closeStore(store)
		return nil, fmt.Errorf("init: %w", err)
	}
	request := &configuration.SubscribeRequest{Metadata: s.requestMetadata()}
	if s.component.kind == kindAzure {
		request.Keys = []string{s.names.key(headPath)}
	}
	subscribed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop = func() {
		cancel()
		closeStore(store)
	}
	_, err = store.Subscribe(subscribed, request, func(_ context.Context, e *configuration.UpdateEvent) error {
		to.add(s.changed(e), "")
		return nil
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return stop, nil
}

// changed is the paths that an event is about. The head is none of them, but news.
func (s settings) changed(e *configuration.UpdateEvent) []string {
	var paths []string
	for key := range e.Items {
		if s.component.kind == kindKubernetes {
			key = fromPoints(key)
		}
		if path, ok := s.names.path(key); ok {
			paths = append(paths, path)
		}
	}
	return paths
}

// closeStore closes a store of Dapr's, also one that Init has left without a client, whose
// Close panics.
func closeStore(store configuration.Store) {
	defer func() { _ = recover() }()
	_ = store.Close()
}
