package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// Selections is so many selections of 20 apps each, in namespace shop.
func Selections(n int) []catalog.Object {
	all := make([]catalog.Object, n)
	for i := range all {
		o := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", i)}}
		for k := range 20 {
			o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", n+1+(i+k)%n)}})
		}
		all[i] = o
	}
	return all
}

var errEnough = errors.New("enough")

// BenchmarkStart measures how long a store takes from Open to the full set of so many objects.
func BenchmarkStart(b *testing.B, objects int, open func() configstore.ReadWriter) {
	for b.Loop() {
		s := open()
		err := s.Watch(b.Context(), "", func(c configstore.Change) error {
			if len(c.Objects) != objects {
				b.Fatalf("%d objects", len(c.Objects))
			}
			return errEnough
		})
		if !errors.Is(err, errEnough) {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDeliver measures how long a change of Cluster east takes from the begin of its write to
// the reader. Beside it, bare watches the same object with as little code as the server allows, if
// it is not nil: it returns once it watches, and sends the time of each change until ctx ends.
func BenchmarkDeliver(b *testing.B, s configstore.Store, write func(*catalog.Cluster), bare func(ctx context.Context, seen chan<- time.Time)) {
	ctx, cancel := context.WithCancel(b.Context())
	ours, theirs, ended := make(chan time.Time, 1), make(chan time.Time, 16), make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, "", func(c configstore.Change) error {
			if c.Full || len(c.Objects) > 0 {
				ours <- time.Now()
			}
			return nil
		})
	}()
	<-ours
	if bare != nil {
		bare(ctx, theirs)
	}
	figures := map[string][]time.Duration{}
	note := func(name string, took time.Duration) { figures[name] = append(figures[name], took) }
	for i := 0; b.Loop(); i++ {
		time.Sleep(time.Millisecond + rand.N(3*time.Millisecond)) // in step with nothing
		begin := time.Now()
		write(Cluster("east", fmt.Sprint("n", i)))
		note("wrote", time.Since(begin))
		delivered := <-ours
		note("ours", delivered.Sub(begin))
		if bare != nil {
			seen := <-theirs
			note("bare", seen.Sub(begin))
			note("extra", delivered.Sub(seen))
		}
	}
	cancel()
	<-ended
	for name, all := range figures {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, name+"-p99-ms")
	}
}
