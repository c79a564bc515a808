package dapr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dapr/components-contrib/configuration"
	daprpostgres "github.com/dapr/components-contrib/configuration/postgres"
	"github.com/dapr/components-contrib/configuration/redis"
	"github.com/dapr/components-contrib/metadata"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// places are a store on each kind of server.
var places = map[string]func(b *testing.B) (component, prefix string){
	"redis": func(b *testing.B) (string, string) {
		return yamlOf(b, kindRedis, startRedis(b).settings("", redisPassword)), newPrefix()
	},
	"postgres": func(b *testing.B) (string, string) {
		p := startPostgres(b)
		return yamlOf(b, kindPostgres, p.settings(p.newDatabase(b), writerUser, postgresPassword)), newPrefix()
	},
}

// fill writes 10,000 selections of 20 apps each.
func fill(b *testing.B, s *Store) {
	b.Helper()
	for batch := range 10 {
		var writes []configstore.Write
		for i := range 1000 {
			o := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", 1000*batch+i)}}
			for k := range 20 {
				o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", 10_001+(i+k)%10_000)}})
			}
			writes = append(writes, configstore.Write{Object: o})
		}
		if _, err := s.Write(b.Context(), writes...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStartWith10000(b *testing.B) {
	for name, start := range places {
		b.Run(name, func(b *testing.B) {
			component, prefix := start(b)
			c := Config{Component: component, Prefix: prefix}
			fill(b, openStoreClosed(b, c))
			enough := errors.New("enough")
			for b.Loop() {
				s := openStore(b, c, configstore.Scope{})
				err := s.Watch(b.Context(), "", func(c configstore.Change) error {
					if len(c.Objects) != 10_000 {
						b.Fatalf("%d objects", len(c.Objects))
					}
					return enough
				})
				if !errors.Is(err, enough) {
					b.Fatal(err)
				}
				_ = s.Close()
			}
		})
	}
}

func openStoreClosed(b *testing.B, c Config) *Store {
	s := openStore(b, c, configstore.Scope{})
	b.Cleanup(func() { _ = s.Close() })
	return s
}

// BenchmarkWriteToDeliver is how long a change takes from the end of its write to the
// reader, with 10,000 objects there, beside the same for the handler of a bare Subscribe
// of Dapr's store, at once and by the same link. Figures are in milliseconds.
func BenchmarkWriteToDeliver(b *testing.B) {
	for name, start := range places {
		b.Run(name, func(b *testing.B) { writeToDeliver(b, start) })
	}
}

func writeToDeliver(b *testing.B, start func(b *testing.B) (string, string)) {
	component, prefix := start(b)
	s := openStoreClosed(b, Config{Component: component, Prefix: prefix})
	fill(b, s)
	ctx, cancel := context.WithCancel(b.Context())
	ours, bare, ended := make(chan time.Time, 1), make(chan time.Time, 16), make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, "", func(configstore.Change) error {
			ours <- time.Now()
			return nil
		})
	}()
	<-ours
	stop := bareSubscribe(b, s, bare)
	subscribed()
	var mine, theirs []time.Duration
	for i := range 1000 {
		if _, err := s.Write(ctx, configstore.Write{Object: cluster("east", fmt.Sprint(i))}); err != nil {
			b.Fatal(err)
		}
		written := time.Now()
		theirs = append(theirs, (<-bare).Sub(written))
		mine = append(mine, (<-ours).Sub(written))
	}
	cancel()
	<-ended
	stop()
	for what, all := range map[string][]time.Duration{"ours": mine, "bare": theirs} {
		slices.Sort(all)
		for p, name := range map[int]string{50: "p50", 99: "p99"} {
			b.ReportMetric(float64(all[len(all)*p/100].Microseconds())/1000, what+"-"+name+"-ms")
		}
	}
	b.ReportMetric(0, "ns/op")
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
