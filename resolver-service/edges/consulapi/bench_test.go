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

// BenchmarkBesideConsul says how many lookups a second there are, as the stock component makes them,
// and how long a change takes to a query that waits for it; docs/reference/consul-api.md shows it.
func BenchmarkBesideConsul(b *testing.B) {
	for _, start := range []func(testing.TB) *agent{consul, func(t testing.TB) *agent { return &ours(t).agent }} {
		a := start(b)
		o := a.client(b, "orders")
		if err := o.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "orders", Port: 7, Address: "127.0.0.1", Check: &api.AgentServiceCheck{TTL: "1h", Status: "passing"}}); err != nil {
			b.Fatal(err)
		}
		b.Run(a.name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(lookups(b, a), "lookups/s")
				times := waits(b, a, o)
				b.ReportMetric(float64(times[len(times)/2].Microseconds()), "µs/change")
				b.ReportMetric(float64(times[len(times)-1].Microseconds()), "µs/worst-change")
			}
		})
		if err := o.Agent().ServiceDeregister("orders"); err != nil {
			b.Error(err)
		}
	}
}

func lookups(t testing.TB, a *agent) float64 {
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
func waits(t testing.TB, a *agent, o *api.Client) (times []time.Duration) {
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
