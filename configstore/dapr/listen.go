package dapr

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/dapr/components-contrib/configuration"
	"github.com/dapr/components-contrib/configuration/azure/appconfig"
	"github.com/dapr/components-contrib/configuration/kubernetes"
	daprpostgres "github.com/dapr/components-contrib/configuration/postgres"
	"github.com/dapr/components-contrib/configuration/redis"
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

// listener is a subscription by Dapr's interface, with a store of Dapr of its own: of
// PostgreSQL's a subscription ends for good with its connection, and to close the store is
// the one way to be rid of all that belongs to it.
type listener struct {
	store  configuration.Store
	cancel context.CancelFunc
	head   string // the key; only Redis's is set
}

// listen subscribes. What is told goes to the hints, until stop.
func listen(ctx context.Context, s settings, to *hints) (*listener, error) {
	b := s.bridge()
	b.failed = func(text string) { to.add(nil, text) }
	store := newStore(s.component.kind, b)
	initial, done := context.WithTimeout(ctx, 2*requestTimeout)
	defer done()
	err := store.Init(initial, configuration.Metadata{Base: metadata.Base{Name: s.component.name, Properties: maps.Clone(s.component.properties)}})
	if err != nil {
		closeStore(store)
		return nil, fmt.Errorf("init: %w", err)
	}
	l := &listener{store: store}
	request := &configuration.SubscribeRequest{Metadata: s.requestMetadata()}
	switch s.component.kind {
	case kindRedis:
		l.head = s.names.key(headPath)
		request.Keys = []string{l.head} // a connection each, so one; all keys would be those of everybody
	case kindAzure:
		request.Keys = []string{s.names.key(headPath)}
	}
	subscribed, cancel := context.WithCancel(context.WithoutCancel(ctx))
	l.cancel = cancel
	_, err = store.Subscribe(subscribed, request, func(_ context.Context, e *configuration.UpdateEvent) error {
		to.add(s.changed(e), "")
		return nil
	})
	if err != nil {
		l.stop()
		return nil, fmt.Errorf("subscribe: %w", err)
	}
	return l, nil
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

func newStore(kind string, b *bridge) configuration.Store {
	switch kind {
	case kindRedis:
		return redis.NewRedisConfigurationStore(b)
	case kindPostgres:
		return daprpostgres.NewPostgresConfigurationStore(b)
	case kindKubernetes:
		return kubernetes.NewKubernetesConfigMapStore(b)
	}
	return appconfig.NewAzureAppConfigurationStore(b)
}

// stop ends the subscription and waits for it.
//
// Dapr's Redis store (1.18.1) reads from a nil message, and so ends the process, when its
// client is closed while a subscription is still on its way to seeing that its context has
// ended: on its way means in a request to Redis. So the client is closed only after a
// request that was made after that end has come back, and some times as long after.
func (l *listener) stop() {
	l.cancel()
	if l.head != "" {
		begin := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		_, _ = l.store.Get(ctx, &configuration.GetRequest{Keys: []string{l.head}})
		cancel()
		time.Sleep(min(20*time.Millisecond+6*time.Since(begin), requestTimeout))
	}
	closeStore(l.store)
}

// closeStore closes a store of Dapr's, also one that Init has left without a client, whose
// Close panics.
func closeStore(store configuration.Store) {
	defer func() { _ = recover() }()
	_ = store.Close()
}
