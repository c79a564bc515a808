package etcd

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

// filled is a store with 10,000 objects.
func filled(b *testing.B, p *testPlace) configstore.ReadWriter {
	b.Helper()
	s := storetest.Closing(b, p.Open(b))
	storetest.Fill(b, s, etcdclient.DefaultMaxTxnOps, storetest.Selections(10_000))
	return s
}

func BenchmarkStartWith10000(b *testing.B) {
	p := newPlace(b, &plainServer)
	filled(b, p)
	storetest.BenchmarkStart(b, 10_000, func() configstore.ReadWriter { return p.Open(b) })
}

// BenchmarkWriteToDeliver has the watch of etcd's own client beside it, which decodes nothing, by
// the same link.
func BenchmarkWriteToDeliver(b *testing.B) {
	p := newPlace(b, &plainServer)
	s := filled(b, p)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{p.Link.Addr()}})
	if err != nil {
		b.Fatal(err)
	}
	defer client.Close()
	storetest.BenchmarkDeliver(b, s, func(o *catalog.Cluster) { storetest.Put(b, s, o) }, func(ctx context.Context, seen chan<- time.Time) {
		watched := client.Watch(ctx, p.Prefix+api.KeyPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
		<-watched
		go func() {
			for range watched {
				seen <- time.Now()
			}
		}()
	})
}

func BenchmarkAtRest(b *testing.B) {
	p := newPlace(b, &plainServer)
	storetest.Follow(b, filled(b, p))
	p.Link.AtRest(b)
}
