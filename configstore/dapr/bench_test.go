package dapr

import (
	"context"
	"testing"
	"time"

	"github.com/dapr/components-contrib/configuration"
	daprpostgres "github.com/dapr/components-contrib/configuration/postgres"
	"github.com/dapr/components-contrib/configuration/redis"
	"github.com/dapr/components-contrib/metadata"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// places are a store on each kind of server.
var places = map[string]func(b *testing.B) (component, prefix string, link serverstest.Link){
	"redis": func(b *testing.B) (string, string, serverstest.Link) {
		r := startRedis(b)
		return yamlOf(b, kindRedis, r.settings("", redisPassword)), newPrefix(), r.link
	},
	"postgres": func(b *testing.B) (string, string, serverstest.Link) {
		p := startPostgres(b)
		return yamlOf(b, kindPostgres, p.settings(p.newDatabase(b), writerUser, postgresPassword)), newPrefix(), p.link
	},
}

func BenchmarkStartWith10000(b *testing.B) {
	for name, start := range places {
		b.Run(name, func(b *testing.B) {
			component, prefix, _ := start(b)
			c := Config{Component: component, Prefix: prefix}
			storetest.Fill(b, opened(b, c), 1000, storetest.Selections(10_000))
			storetest.BenchmarkStart(b, 10_000, func() configstore.ReadWriter { return openStore(b, c, configstore.Scope{}) })
		})
	}
}

// BenchmarkWriteToDeliver has the handler of a bare Subscribe of Dapr's store beside it, by the
// same link.
func BenchmarkWriteToDeliver(b *testing.B) {
	for name, start := range places {
		b.Run(name, func(b *testing.B) {
			component, prefix, _ := start(b)
			s := opened(b, Config{Component: component, Prefix: prefix})
			storetest.Fill(b, s, 1000, storetest.Selections(10_000))
			stop := func() {}
			storetest.BenchmarkDeliver(b, s, func(o *catalog.Cluster) { storetest.Put(b, s, o) }, func(_ context.Context, seen chan<- time.Time) {
				stop = bareSubscribe(b, s, seen)
				subscribed()
			})
			stop()
		})
	}
}

// bareSubscribe subscribes to the object's key by Dapr's own store, and tells when its
// handler is called.
func bareSubscribe(b *testing.B, s *Store, told chan<- time.Time) (stop func()) {
	l, err := s.acquire(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	defer s.release(l)
	store := redis.NewRedisConfigurationStore(l.settings.logger())
	if l.settings.component.kind == kindPostgres {
		store = daprpostgres.NewPostgresConfigurationStore(l.settings.logger())
	}
	if err := store.Init(b.Context(), configuration.Metadata{Base: metadata.Base{Properties: l.settings.component.properties}}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	key := l.settings.names.key(eastPath)
	_, err = store.Subscribe(ctx, &configuration.SubscribeRequest{Keys: []string{key}}, func(context.Context, *configuration.UpdateEvent) error {
		told <- time.Now()
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return func() {
		cancel()
		time.Sleep(time.Second) // it can't be closed under a subscription
		closeStore(store)
	}
}

func BenchmarkAtRest(b *testing.B) {
	for name, start := range places {
		b.Run(name, func(b *testing.B) {
			component, prefix, link := start(b)
			s := opened(b, Config{Component: component, Prefix: prefix})
			storetest.Fill(b, s, 1000, storetest.Selections(10_000))
			storetest.Follow(b, s)
			link.AtRest(b)
		})
	}
}
