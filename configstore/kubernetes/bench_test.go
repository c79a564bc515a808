package kubernetes

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

// fill puts n selections of 20 apps into the cluster.
func (c *cluster) fill(b *testing.B, n int) {
	b.Helper()
	c.wipe(b)
	c.makeNamespaces(b, "shop")
	s := openStore(b, c.config(b, "service"), configstore.Scope{})
	defer s.Close()
	storetest.Fill(b, s, 1, storetest.Selections(n))
}

// quietly is the settings of a store that writes no status, which would be measured, too.
func (c *cluster) quietly(b *testing.B) Config {
	config := c.config(b, "service")
	config.Status = new(bool)
	return config
}

func BenchmarkStartWith10000(b *testing.B) {
	c := strict(b)
	c.fill(b, 10_000)
	storetest.BenchmarkStart(b, 10_000, func() configstore.ReadWriter { return openStore(b, c.quietly(b), configstore.Scope{}) })
}

// BenchmarkChangesDelivered has a bare watch of the same API server beside it, which reads a line
// and does nothing.
func BenchmarkChangesDelivered(b *testing.B) {
	c := strict(b)
	c.fill(b, 10_000)
	s := storetest.Closing(b, openStore(b, c.quietly(b), configstore.Scope{}))
	write := func(o *catalog.Cluster) { storetest.Put(b, s, o) }
	storetest.BenchmarkDeliver(b, s, write, func(ctx context.Context, seen chan<- time.Time) { c.bareWatch(ctx, b, seen) })
}

func (c *cluster) bareWatch(ctx context.Context, b *testing.B, seen chan<- time.Time) {
	b.Helper()
	var list apiserver.Page
	body, err := c.admin.Call(ctx, apiserver.Request{Method: http.MethodGet, Path: resourceOf(catalog.KindCluster).path("")})
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		b.Fatal(err)
	}
	response, err := c.admin.Send(ctx, apiserver.Request{Method: http.MethodGet, Path: resourceOf(catalog.KindCluster).path(""),
		Query: url.Values{"watch": {"true"}, "resourceVersion": {list.Metadata.ResourceVersion}}})
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		defer response.Body.Close()
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			seen <- time.Now()
		}
	}()
}

func BenchmarkAtRest(b *testing.B) {
	c := strict(b)
	c.fill(b, 10_000)
	storetest.Follow(b, storetest.Closing(b, openStore(b, c.quietly(b), configstore.Scope{})))
	c.Link.AtRest(b)
}
