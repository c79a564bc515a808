package topology

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// churn makes and deletes the selections of one new app after the other, until it has
// done so for each.
func churn(t *testing.T, top *Topology, apps int, made func(id string)) {
	t.Helper()
	for i := range apps {
		id := fmt.Sprint("app-", i)
		top.must(t, objects(selects(id, calls("orders"))))
		made(id)
		top.must(t, deletes(catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: id}))
	}
}

func TestASelectionIsNotLostOnAReaderWhoGoesAsItComes(t *testing.T) {
	top := running(t, west)
	top.must(t, full())
	const apps = 1000
	ctx, stop := context.WithCancel(t.Context())
	var next atomic.Int64
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				top.Resolve(app(fmt.Sprint("app-", next.Load())), app("orders"))
			}
		})
	}
	churn(t, top, apps, func(id string) {
		s := top.Subscribe(app(id))
		defer s.Close()
		if v, _ := s.View(); v.Open {
			t.Errorf("%s has a selection and gets the view of apps without one", id)
		}
		next.Add(1)
	})
	stop()
	readers.Wait()
}

func TestOneRevisionIsOneView(t *testing.T) {
	top := running(t, west)
	top.must(t, full())
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			s := top.Subscribe(app("app-0"))
			defer s.Close()
			var seen *catalog.View
			for {
				v, err := s.Next(ctx, seen)
				if err != nil {
					return
				}
				if seen != nil && v.Revision <= seen.Revision {
					t.Errorf("revision %d (open %v) after %d (open %v)", v.Revision, v.Open, seen.Revision, seen.Open)
				}
				seen = v
			}
		})
	}
	for range 1000 {
		churn(t, top, 1, func(string) {})
	}
	stop()
	readers.Wait()
}
