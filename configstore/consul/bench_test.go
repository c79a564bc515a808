package consul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// selection is one of many objects, of some 700 bytes.
func selection(n, to int) *catalog.AppEndpoints {
	o := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", n)}}
	for k := range 10 {
		o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("to-%d", to+k)}})
	}
	return o
}

// fill writes so many objects.
func fill(t testing.TB, s *Store, objects int) {
	t.Helper()
	for begin := 0; begin < objects; begin += MaxBatch {
		var writes []configstore.Write
		for n := begin; n < min(begin+MaxBatch, objects); n++ {
			writes = append(writes, configstore.Write{Object: selection(n, n)})
		}
		if _, err := s.Write(t.Context(), writes...); err != nil {
			t.Fatal(err)
		}
	}
}

var errEnough = errors.New("enough")

func BenchmarkStartWith10000(b *testing.B) {
	p := newPlace(b)
	s := p.open(b, p.token)
	fill(b, s, 10_000)
	for b.Loop() {
		err := s.Watch(b.Context(), "", func(c configstore.Change) error {
			if len(c.Objects) != 10_000 {
				b.Fatalf("%d objects", len(c.Objects))
			}
			return errEnough
		})
		if !errors.Is(err, errEnough) {
			b.Fatal(err)
		}
	}
}

// sight is when a change was seen.
type sight struct {
	what string
	at   time.Time
}

// changing is the object that is changed.
const changing = 5000

// BenchmarkWriteToDeliverWith10000 measures the time from before a write to its delivery
// by a Watch, beside a bare blocking query for the one key, for writes by Isthmus and by
// other hands.
func BenchmarkWriteToDeliverWith10000(b *testing.B) {
	for name, byHand := range map[string]bool{"apply": false, "hand": true} {
		b.Run(name, func(b *testing.B) { writeToDeliver(b, byHand) })
	}
}

func writeToDeliver(b *testing.B, byHand bool) {
	p := newPlace(b)
	s := p.open(b, p.token)
	fill(b, s, 10_000)
	ctx, cancel := context.WithCancel(b.Context())
	bare, watched := make(chan sight, 100), make(chan sight, 100)
	done := make(chan error, 2)
	go func() { done <- p.watchBare(ctx, bare) }()
	go func() {
		done <- s.Watch(ctx, "", func(c configstore.Change) error {
			for _, o := range c.Objects {
				if !c.Full {
					watched <- sight{o.Object.(*catalog.AppEndpoints).Endpoints[0].App.ID, time.Now()}
				}
			}
			return nil
		})
	}()
	var bares, extras, wrote []time.Duration
	i := 0
	for b.Loop() {
		o := selection(changing, i)
		i++
		begin := time.Now()
		if byHand {
			p.put(b, isthmus.KeyPath(o.Key()), isthmus.EncodeJSON(o))
		} else if _, err := s.Write(ctx, configstore.Write{Object: o}); err != nil {
			b.Fatal(err)
		}
		wrote = append(wrote, time.Since(begin))
		first, second := await(b, bare, o.Endpoints[0].App.ID), await(b, watched, o.Endpoints[0].App.ID)
		bares, extras = append(bares, first.Sub(begin)), append(extras, second.Sub(first))
	}
	for name, values := range map[string][]time.Duration{"wrote": wrote, "bare": bares, "extra": extras} {
		slices.Sort(values)
		b.ReportMetric(float64(values[len(values)/2])/1e6, name+"-p50-ms")
		b.ReportMetric(float64(values[len(values)*99/100])/1e6, name+"-p99-ms")
	}
	cancel()
	<-done
	<-done
}

func await(b *testing.B, seen <-chan sight, what string) time.Time {
	b.Helper()
	limit := time.After(30 * time.Second)
	for {
		select {
		case s := <-seen:
			if s.what == what {
				return s.at
			}
		case <-limit:
			b.Fatalf("%s is not seen", what)
		}
	}
}

// watchBare is the least that sees a change of the object.
func (p *testPlace) watchBare(ctx context.Context, seen chan<- sight) error {
	options := (&api.QueryOptions{WaitTime: time.Minute}).WithContext(ctx)
	key := selection(changing, 0).Key()
	for {
		pair, meta, err := shared.Admin.KV().Get(p.prefix+isthmus.KeyPath(key), options)
		if err != nil {
			return err
		}
		if pair != nil && meta.LastIndex != options.WaitIndex {
			o, err := isthmus.DecodeJSON(isthmus.KeyPath(key), pair.Value)
			if err != nil {
				return err
			}
			seen <- sight{o.(*catalog.AppEndpoints).Endpoints[0].App.ID, time.Now()}
		}
		options.WaitIndex = meta.LastIndex
	}
}

// BenchmarkQuestionsWith10000 is what the ways to ask for a prefix cost, with nothing to
// wait for.
func BenchmarkQuestionsWith10000(b *testing.B) {
	p := newPlace(b)
	fill(b, p.open(b, p.token), 10_000)
	kv, base := shared.Admin.KV(), p.prefix+isthmus.KeyPrefix
	for name, ask := range map[string]func() error{
		"one key":              func() error { _, _, err := kv.Get(base+headName, nil); return err },
		"names of first level": func() error { _, _, err := kv.Keys(base, "/", nil); return err },
		"all names":            func() error { _, _, err := kv.Keys(base, "", nil); return err },
		"everything":           func() error { _, _, err := kv.List(base, nil); return err },
		"tenth of names":       func() error { _, _, err := kv.Keys(base+"AppEndpoints/shop/app-1", "", nil); return err },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := ask(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
