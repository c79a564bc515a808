package kubernetes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
)

// fill puts n selections of 20 apps into the cluster.
func (c *cluster) fill(b *testing.B, n int) {
	b.Helper()
	c.wipe(b)
	c.makeNamespaces(b, "shop")
	s := openStore(b, c.config(b, "service"), configstore.Scope{})
	defer s.Close()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range n {
		group.Go(func() error {
			o := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", i)}}
			for k := range 20 {
				o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprintf("app-%d", n+1+(i*37+k)%n)}})
			}
			_, err := s.Write(b.Context(), configstore.Write{Object: o, If: configstore.Absent})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
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
	stop := errors.New("enough")
	for b.Loop() {
		s := openStore(b, c.quietly(b), configstore.Scope{})
		err := s.Watch(b.Context(), "", func(c configstore.Change) error {
			if len(c.Objects) != 10_000 {
				b.Fatalf("%d objects", len(c.Objects))
			}
			return stop
		})
		if !errors.Is(err, stop) {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChangesDelivered measures from a write until it is delivered, with 10,000
// objects, beside a bare watch of the same API server that reads a line and does nothing.
func BenchmarkChangesDelivered(b *testing.B) {
	c := strict(b)
	c.fill(b, 10_000)
	s := openStore(b, c.quietly(b), configstore.Scope{})
	defer s.Close()
	delivered, bare := make(chan time.Time, 1), make(chan time.Time, 1)
	started := make(chan struct{})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() {
		_ = s.Watch(ctx, "", func(c configstore.Change) error {
			if c.Full {
				close(started)
			} else if len(c.Objects) > 0 {
				delivered <- time.Now()
			}
			return nil
		})
	}()
	<-started
	c.bareWatch(ctx, b, bare)
	var ours, theirs []time.Duration
	n := 0
	for b.Loop() {
		n++
		o := &catalog.Cluster{Name: "east", Network: fmt.Sprint("n", n), StaleAfter: catalog.DefaultStaleAfter}
		begin := time.Now()
		if _, err := s.Write(ctx, configstore.Write{Object: o}); err != nil {
			b.Fatal(err)
		}
		ours, theirs = append(ours, (<-delivered).Sub(begin)), append(theirs, (<-bare).Sub(begin))
	}
	for name, times := range map[string][]time.Duration{"ours": ours, "bare": theirs} {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, name+"-p99-ms")
	}
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
