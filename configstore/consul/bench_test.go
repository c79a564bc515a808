package consul

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
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
	all := make([]catalog.Object, objects)
	for n := range all {
		all[n] = selection(n, n)
	}
	storetest.Fill(t, s, MaxBatch, all)
}

var errEnough = errors.New("enough")

func BenchmarkStartWith10000(b *testing.B) {
	p := newPlace(b)
	s := p.open(b, p.token)
	fill(b, s, 10_000)
	storetest.BenchmarkStart(b, 10_000, func() configstore.ReadWriter { return mustOpen(b, p.config(b, p.token), configstore.Scope{}) })
}

// BenchmarkWriteToDeliverWith10000 has a blocking query for the one key beside it, for writes by
// Isthmus and by other hands.
func BenchmarkWriteToDeliverWith10000(b *testing.B) {
	for name, byHand := range map[string]bool{"apply": false, "hand": true} {
		b.Run(name, func(b *testing.B) {
			p := newPlace(b)
			s := p.open(b, p.token)
			fill(b, s, 10_000)
			storetest.Put(b, s, cluster("east", "first")) // a query for a key that is not there answers for others
			storetest.BenchmarkDeliver(b, s, func(o *catalog.Cluster) {
				if byHand {
					p.byHand(b, o)
				} else {
					storetest.Put(b, s, o)
				}
			}, p.watchBare)
		})
	}
}

// watchBare is the least that sees a change of Cluster east.
func (p *testPlace) watchBare(ctx context.Context, seen chan<- time.Time) {
	key, index := p.prefix+isthmus.KeyPath(cluster("east", "").Key()), uint64(0)
	ask := func() error {
		_, meta, err := shared.Admin.KV().Get(key, (&api.QueryOptions{WaitIndex: index, WaitTime: time.Minute}).WithContext(ctx))
		if err == nil {
			index = meta.LastIndex
		}
		return err
	}
	_ = ask()
	go func() {
		for was := index; ask() == nil; was = index {
			if index != was {
				seen <- time.Now()
			}
		}
	}()
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

func BenchmarkAtRest(b *testing.B) {
	p := newPlace(b)
	s := p.open(b, p.token)
	fill(b, s, 10_000)
	storetest.Follow(b, s)
	p.link.AtRest(b)
}
