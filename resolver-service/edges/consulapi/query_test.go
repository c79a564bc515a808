package consulapi

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// query is what one endpoint answers, in a form that can be compared.
type query func(*api.Client, *api.QueryOptions) (text string, meta *api.QueryMeta, err error)

// queries are those that block by an index. each changes with checkout's service.
var queries = map[string]query{
	"health/service": func(c *api.Client, o *api.QueryOptions) (string, *api.QueryMeta, error) {
		all, meta, err := c.Health().Service("checkout", "", false, o)
		text := ""
		for _, e := range all {
			text += fmt.Sprint(e.Service.ID, e.Service.Port, e.Checks.AggregatedStatus(), " ")
		}
		return text, meta, err
	},
	"health/checks": func(c *api.Client, o *api.QueryOptions) (string, *api.QueryMeta, error) {
		all, meta, err := c.Health().Checks("checkout", o)
		text := ""
		for _, e := range all {
			text += e.CheckID + e.Status + " "
		}
		return text, meta, err
	},
	"health/state": func(c *api.Client, o *api.QueryOptions) (string, *api.QueryMeta, error) {
		o.Filter = `ServiceName=="checkout" or ServiceName=="nobody"`
		all, meta, err := c.Health().State(api.HealthAny, o)
		return fmt.Sprint(len(all), all.AggregatedStatus()), meta, err
	},
	"health/state of all": func(c *api.Client, o *api.QueryOptions) (string, *api.QueryMeta, error) {
		all, meta, err := c.Health().State(api.HealthAny, o)
		return fmt.Sprint(len(all), all.AggregatedStatus()), meta, err
	},
	"catalog/service": func(c *api.Client, o *api.QueryOptions) (string, *api.QueryMeta, error) {
		all, meta, err := c.Catalog().Service("checkout", "", o)
		text := ""
		for _, e := range all {
			text += fmt.Sprint(e.ServiceID, e.ServicePort, " ")
		}
		return text, meta, err
	},
	"catalog/services": func(c *api.Client, o *api.QueryOptions) (string, *api.QueryMeta, error) {
		all, meta, err := c.Catalog().Services(o)
		return fmt.Sprint(len(all["checkout"])), meta, err
	},
}

// TestAQueryBlocksUntilSomethingChanges holds both to Consul's rules of blocking queries.
func TestAQueryBlocksUntilSomethingChanges(t *testing.T) {
	both(t, func(t *testing.T, a *agent) {
		c := a.client(t, "checkout")
		for name, ask := range queries {
			t.Run(name, func(t *testing.T) {
				before, meta := must(t, ask, c, &api.QueryOptions{})
				if meta.LastIndex == 0 || !meta.KnownLeader {
					t.Errorf("index %d, known leader %v", meta.LastIndex, meta.KnownLeader)
				}
				type answer struct {
					text  string
					index uint64
				}
				answers := make(chan answer, 1)
				go func() {
					text, index := before, meta.LastIndex
					for text == before { // Consul may come back for what is no change
						var next *api.QueryMeta
						text, next = must(t, ask, c, &api.QueryOptions{WaitIndex: index, WaitTime: 20 * time.Second, AllowStale: true}) // as consul-template asks
						if next.LastIndex < index {
							t.Errorf("the index went from %d to %d", index, next.LastIndex)
						}
						index = next.LastIndex
					}
					answers <- answer{text, index}
				}()
				if err := c.Agent().ServiceRegister(&api.AgentServiceRegistration{
					Name: "checkout", Port: 1, Tags: []string{"x"}, Address: "127.0.0.1", Check: &api.AgentServiceCheck{TTL: "1h"},
				}); err != nil {
					t.Fatal(err)
				}
				select {
				case got := <-answers:
					if got.index <= meta.LastIndex || got.text == before {
						t.Errorf("came back with index %d after %d, and %q after %q", got.index, meta.LastIndex, got.text, before)
					}
				case <-time.After(time.Minute):
					t.Error("did not come back")
				}
				if err := c.Agent().ServiceDeregister("checkout"); err != nil {
					t.Fatal(err)
				}
				serverstest.Await(t, "as it was", func() bool { text, _ := must(t, ask, c, &api.QueryOptions{}); return text == before })
			})
		}
	})
}

func must(t *testing.T, ask query, c *api.Client, o *api.QueryOptions) (string, *api.QueryMeta) {
	t.Helper()
	text, meta, err := ask(c, o)
	if err != nil {
		t.Error(err)
		return "", &api.QueryMeta{}
	}
	return text, meta
}

// TestAQueryComesBackAfterItsWait: the wait that was asked for, and at most a sixteenth
// more, as far as a busy machine lets that be seen.
func TestAQueryComesBackAfterItsWait(t *testing.T) {
	both(t, func(t *testing.T, a *agent) {
		r := a.do(t, "checkout", "GET", "/v1/health/service/checkout", "")
		index := r.header.Get("X-Consul-Index")
		start := time.Now()
		again := a.do(t, "checkout", "GET", "/v1/health/service/checkout?wait=300ms&index="+index, "")
		took := time.Since(start)
		if took < 300*time.Millisecond || took > 20*time.Second {
			t.Errorf("came back after %s", took)
		}
		if got := again.header.Get("X-Consul-Index"); got != index {
			t.Errorf("index %s became %s with nothing changed", index, got)
		}
		if again.body != r.body {
			t.Errorf("%s became %s", r.body, again.body)
		}
	})
}

// TestWhatDoesNotConcernAQueryDoesNotWakeIt is better than Consul, whose index of a service
// that is not there moves with others.
func TestWhatDoesNotConcernAQueryDoesNotWakeIt(t *testing.T) {
	i := ours(t)
	orders, checkout := i.client(t, "orders"), i.client(t, "checkout")
	_, meta, err := checkout.Health().Service("nobody", "", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, own, err := checkout.Health().Service("checkout", "", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := orders.Agent().ServiceRegister(&api.AgentServiceRegistration{Name: "orders", Port: 7, Address: "127.0.0.1"}); err != nil {
		t.Fatal(err)
	}
	if all, _, err := checkout.Health().Service("orders", "", true, nil); err != nil || len(all) != 1 {
		t.Fatalf("%v %v: want orders", all, err)
	}
	for name, before := range map[string]uint64{"nobody": meta.LastIndex, "checkout": own.LastIndex} {
		if _, meta, err := checkout.Health().Service(name, "", true, nil); err != nil || meta.LastIndex != before {
			t.Errorf("%s: index %d became %v (%v) as orders came", name, before, meta, err)
		}
	}
}

// TestAnIndexOfAnotherLifeIsAnsweredAtOnce is for clients that come from another replica.
func TestAnIndexOfAnotherLifeIsAnsweredAtOnce(t *testing.T) {
	i := ours(t)
	r := i.do(t, "checkout", "GET", "/v1/health/service/checkout?wait=9m&index=18446744073709551615", "")
	if index, err := strconv.ParseUint(r.header.Get("X-Consul-Index"), 10, 64); err != nil || index == 0 || r.code != 200 {
		t.Errorf("%+v", r)
	}
}

// TestATTLRunsOut holds both to what becomes of a check that is not renewed.
func TestATTLRunsOut(t *testing.T) {
	both(t, func(t *testing.T, a *agent) {
		c := a.client(t, "checkout")
		if err := c.Agent().ServiceRegister(&api.AgentServiceRegistration{
			Name: "checkout", Port: 1, Address: "127.0.0.1", Check: &api.AgentServiceCheck{CheckID: "t", TTL: "1s", Status: "passing"},
		}); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Agent().ServiceDeregister("checkout") }()
		status := func() (status, output string) {
			all, _, err := c.Health().Checks("checkout", nil)
			if err != nil || len(all) > 1 {
				t.Fatal(all, err)
			}
			if len(all) == 0 {
				return "", "" // Consul's catalog learns of it a moment later
			}
			return all[0].Status, all[0].Output
		}
		becomes := func(want, output string) {
			t.Helper()
			serverstest.Await(t, want+" "+output, func() bool { s, o := status(); return s == want && o == output })
		}
		becomes("critical", "TTL expired")
		if all, _, err := c.Health().Service("checkout", "", true, nil); err != nil || len(all) != 0 {
			t.Errorf("%v %v: a service passes whose check does not", all, err)
		}
		if err := c.Agent().UpdateTTL("t", "fine", "pass"); err != nil {
			t.Fatal(err)
		}
		becomes("critical", "TTL expired (last output before timeout follows): fine")
	})
}

// TestAClientThatGoesFreesItsQuery: what waits ends with who asked.
func TestAClientThatGoesFreesItsQuery(t *testing.T) {
	i := ours(t)
	r := i.do(t, "checkout", "GET", "/v1/health/service/checkout", "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := i.client(t, "checkout")
	go func() {
		index, _ := strconv.ParseUint(r.header.Get("X-Consul-Index"), 10, 64)
		_, _, err := c.Health().Service("checkout", "", true, (&api.QueryOptions{WaitIndex: index, WaitTime: time.Hour}).WithContext(ctx))
		done <- err
	}()
	time.Sleep(20 * time.Millisecond) // most often it waits by now
	cancel()
	if err := <-done; err == nil {
		t.Error("an answer")
	}
	i.stop() // which waits for what is under way
}
