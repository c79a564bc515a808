package etcd

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

// fill writes 10,000 selections of 20 apps each.
func fill(b *testing.B, s *Store) {
	b.Helper()
	var writes []configstore.Write
	for i := range 10_000 {
		o := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", i)}}
		for k := range 20 {
			o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", 10_001+(i+k)%10_000)}})
		}
		writes = append(writes, configstore.Write{Object: o})
	}
	for batch := range slices.Chunk(writes, etcdclient.DefaultMaxTxnOps) {
		if _, err := s.Write(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStartWith10000(b *testing.B) {
	p := newPlace(b, &plainServer)
	s := p.Open(b).(*Store)
	defer s.Close()
	fill(b, s)
	enough := errors.New("enough")
	for b.Loop() {
		s := p.Open(b).(*Store)
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
}

// BenchmarkWriteToDeliver is how long a change takes from the begin of its write to the
// reader, with 10,000 objects there, beside the same for etcd's own client and its watch,
// which decodes nothing. Both are there at once and by the same link.
func BenchmarkWriteToDeliver(b *testing.B) {
	p := newPlace(b, &plainServer)
	s := p.Open(b).(*Store)
	defer s.Close()
	fill(b, s)
	ours, bare := make(chan time.Time, 1), make(chan time.Time, 1)
	stop := errors.New("stop")
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(b.Context(), "", func(c configstore.Change) error {
			ours <- time.Now()
			if len(c.Objects) == 1 && c.Objects[0].Object.(*catalog.Cluster).Network == "end" {
				return stop
			}
			return nil
		})
	}()
	<-ours
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Link.Addr()}})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	watched := client.Watch(b.Context(), p.Prefix+api.KeyPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watched
	go func() {
		for range watched {
			bare <- time.Now()
		}
	}()
	var withUs, without []time.Duration
	change := func(network string) {
		begin := time.Now()
		storetest.Put(b, s, cluster("east", network))
		withUs = append(withUs, (<-ours).Sub(begin))
		without = append(without, (<-bare).Sub(begin))
	}
	for i := 0; b.Loop(); i++ {
		change(fmt.Sprintf("n%d", i))
	}
	for name, all := range map[string][]time.Duration{"": withUs, "bare-": without} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds()), name+"p50-µs")
		b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), name+"p99-µs")
	}
	change("end")
	if err := <-ended; !errors.Is(err, stop) {
		b.Fatal(err)
	}
}
