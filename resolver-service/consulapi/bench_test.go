package consulapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
)

// TestFigures says how many lookups a second there are, as the stock component makes them,
// and how long a change takes to a query that waits for it. It holds nobody to anything;
// docs/reference/consul-api.md shows what it said.
func TestFigures(t *testing.T) {
	if testing.Short() {
		t.Skip("figures")
	}
	both(t, func(t *testing.T, a *agent) {
		o := a.client(t, "orders")
		if err := o.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "orders", Port: 7, Address: "127.0.0.1", Check: &api.AgentServiceCheck{TTL: "1h", Status: "passing"}}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = o.Agent().ServiceDeregister("orders") }()
		t.Logf("%s: %.0f lookups a second by one client's 4 connections", a.name, lookups(t, a))
		times := waits(t, a, o)
		t.Logf("%s: a change is told after %s, %s at worst, of %d", a.name, times[len(times)/2].Round(10*time.Microsecond), times[len(times)-1].Round(10*time.Microsecond), len(times))
	})
}

func lookups(t *testing.T, a *agent) float64 {
	const clients, each = 4, 500
	var all sync.WaitGroup
	start := time.Now()
	for range clients {
		c := a.client(t, "checkout")
		all.Go(func() {
			for range each {
				if got, _, err := c.Health().Service("orders", "", true, &api.QueryOptions{UseCache: true}); err != nil || len(got) != 1 {
					t.Error(got, err)
					return
				}
			}
		})
	}
	all.Wait()
	return clients * each / time.Since(start).Seconds()
}

// waits are the times from a change to the answer of who waits for it, sorted.
func waits(t *testing.T, a *agent, o *api.Client) (times []time.Duration) {
	c := a.client(t, "checkout")
	for n := range 30 {
		_, meta, err := c.Health().Service("orders", "", false, nil)
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan time.Time, 1)
		go func() {
			_, _, err := c.Health().Service("orders", "", false, &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: 30 * time.Second})
			if err != nil {
				t.Error(err)
			}
			told <- time.Now()
		}()
		time.Sleep(20 * time.Millisecond) // most often it waits by now
		start := time.Now()
		if err := o.Agent().UpdateTTL("service:orders", fmt.Sprint(n), []string{"warn", "pass"}[n%2]); err != nil {
			t.Fatal(err)
		}
		times = append(times, (<-told).Sub(start))
	}
	slices.Sort(times)
	return times
}

// BenchmarkLookup is one lookup within the server, without the network.
func BenchmarkLookup(b *testing.B) {
	i := ours(b)
	if err := i.client(b, "orders").Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "orders", Port: 7, Address: "127.0.0.1"}); err != nil {
		b.Fatal(err)
	}
	q := httptest.NewRequest("GET", "/v1/health/service/orders?passing=1&cached=", nil)
	q.Host = "localhost:8500"
	q.Header.Set("X-Consul-Token", i.tokens["checkout"])
	b.ReportAllocs()
	for b.Loop() {
		w := discard{header: http.Header{}}
		i.server.ServeHTTP(&w, q)
		if w.code != 200 {
			b.Fatal(w.code)
		}
	}
}

// discard is a response that nobody reads.
type discard struct {
	header http.Header
	code   int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(code int)        { d.code = code }
