package resolverservice

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/nameresolution"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering"
	instances "github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/consul"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/etcd"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// When sidecars are sent to other replicas, and that it takes staleAfter of the peer.
func TestWhenAReplicaIsCutOff(t *testing.T) {
	const staleAfter = 10 * time.Second
	member := func(name string, hears ...string) etcd.Member { return etcd.Member{Replica: name, Hears: hears} }
	for _, c := range []struct {
		what   string
		hears  []string // of the peers east and north
		others []etcd.Member
		want   string // who hears east
	}{
		{"all is well", []string{"east", "north"}, []etcd.Member{member("r2", "east", "north")}, ""},
		{"another hears the peer, too", []string{"north"}, []etcd.Member{member("r2", "east", "north"), member("r3", "north"), member("r4", "east", "north")}, "r2 r4"},
		{"another hears a peer of none", nil, []etcd.Member{member("r2", "east")}, "r2"},
		{"nobody hears the peer", []string{"north"}, []etcd.Member{member("r2", "north")}, ""},
		{"each hears another", []string{"north"}, []etcd.Member{member("r2", "east")}, ""},
		{"there is no other replica", nil, nil, ""},
		{"the others are older and don't say", nil, []etcd.Member{member("r2")}, ""},
	} {
		var away, told string
		hears := c.hears
		o := &cutOff{
			reach: func() (all []peering.Reach) {
				for _, p := range []string{"east", "north"} {
					all = append(all, peering.Reach{Cluster: p, Heard: slices.Contains(hears, p), StaleAfter: staleAfter})
				}
				return all
			},
			tell:   func(hears []string) { told = fmt.Sprint(hears) },
			others: func() []etcd.Member { return c.others },
			turnAway: func(why string, sure bool) {
				if away = why; !sure {
					t.Errorf("%s: it is not sure", c.what)
				}
			},
		}
		began := time.Now()
		o.look(began)
		o.look(began.Add(staleAfter - time.Millisecond))
		if away != "" || told != fmt.Sprint(c.hears) {
			t.Errorf("%s: before %s sidecars are sent away: %q; others are told of %s", c.what, staleAfter, away, told)
		}
		o.look(began.Add(staleAfter))
		status := &v1alpha1.StatusResponse{Peers: []*v1alpha1.PeerStatus{{Cluster: "east"}}}
		o.addStatus(status)
		if by := status.Peers[0].GetHeardBy(); fmt.Sprint(by) != "["+c.want+"]" || (away != "") != (c.want != "") {
			t.Errorf("%s: heard by %v, want %q; %q", c.what, by, c.want, away)
		}
		hears = []string{"east", "north"}
		if o.look(began.Add(staleAfter + time.Second)); away != "" {
			t.Errorf("%s: it hears again, and says %q", c.what, away)
		}
	}
}

// Replicas that tell each other nothing send sidecars away for a peer that they have not heard of for
// its staleAfter, and say that they are not sure.
func TestWhenAReplicaThatHearsOfNoOtherIsCutOff(t *testing.T) {
	const staleAfter = 10 * time.Second
	heard, away := false, ""
	o := &cutOff{
		reach: func() []peering.Reach {
			return []peering.Reach{{Cluster: "east", Heard: heard, StaleAfter: staleAfter}, {Cluster: "north", Heard: true, StaleAfter: staleAfter}}
		},
		turnAway: func(why string, sure bool) {
			if away = why; sure {
				t.Error("it is sure")
			}
		},
	}
	began := time.Now()
	for _, step := range []struct {
		after time.Duration
		heard bool
		away  bool
	}{
		{0, false, false}, {staleAfter - time.Millisecond, false, false}, {staleAfter, false, true},
		{staleAfter + time.Second, true, false}, {staleAfter + 2*time.Second, false, false}, {2*staleAfter + 2*time.Second, false, true},
	} {
		heard = step.heard
		if o.look(began.Add(step.after)); (away != "") != step.away {
			t.Errorf("after %s, with east heard: %t, sidecars are sent away: %q; want %t", step.after, step.heard, away, step.away)
		}
	}
	if want := "this replica does not hear east, and others may"; away != want {
		t.Errorf("they are told %q; want %q", away, want)
	}
}

// Two replicas share Consul and no etcd, so that neither knows what the other hears. When the peer is
// gone for both, a sidecar goes to the other once and stays there, with its view.
func TestReplicasWithoutEtcdTurnASidecarAwayOnce(t *testing.T) {
	server := serverstest.Start(t, servers.StartConsul, servers.ConsulOptions{})
	ca := identitytest.NewCA(t)
	var replicas [2]*running
	for i := range replicas {
		cfg := configOf(t, "west", ca)
		cfg.Replicas, cfg.Store = &Replicas{Name: fmt.Sprint("r", i)}, Store{Consul: &consul.Config{Address: server.URL()}}
		cfg.Instances.Consul = &instances.Config{Address: server.URL()}
		replicas[i] = start(t, cfg, ca)
	}
	east := start(t, configOf(t, "east", ca), ca)
	east.apply(export("west") + "---\n" + clusterOnly("west"))
	east.sidecar(orders, "10.1.0.1:50002")
	replicas[0].apply(clusterAt("east", east.Addr("gateway"), "1s") + "---\n" + selectsOrders)
	for _, r := range replicas {
		r.within("orders in east", func() bool { return strings.HasPrefix(r.resolve(checkout, orders), "ok") })
	}
	f := ca.Config(checkout).Files
	caller := nameresolution.New(nameresolution.Options{Logger: slog.New(slog.DiscardHandler)})
	err := caller.Init(t.Context(), map[string]any{
		"resolver": replicas[0].Addr("resolver").String() + "," + replicas[1].Addr("resolver").String(), "cluster": "west",
		"identity": map[string]any{"files": map[string]any{"cert": f.Cert, "key": f.Key, "ca": f.CA}},
	}, nameresolution.Instance{App: checkout, Address: "127.0.0.1", Port: 50001})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	if _, err := caller.ResolveID(t.Context(), orders); err != nil {
		t.Fatal(err)
	}
	left := func(r *running) (times int) {
		for _, e := range r.events.After(0, time.Time{}) {
			if e.Message == "sidecar left" && strings.Contains(fmt.Sprint(e.Fields), checkout.String()) {
				times += e.Count
			}
		}
		return times
	}
	at, other := replicas[0], replicas[1]
	at.within("the sidecar registered", func() bool {
		if other.resolver.stream.Instances() == 1 {
			at, other = other, at
		}
		return at.resolver.stream.Instances() == 1
	})
	before := left(at) // with a view alone
	if err := east.stop(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*running{at, other} {
		r.within("it sends on a sidecar that knows another replica", func() bool {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			stream, err := v1alpha1.NewResolverClient(r.connect(orders)).Watch(ctx)
			if err == nil {
				err = stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: &v1alpha1.Hello{App: wireApp(orders), HasOthers: true}}})
			}
			if err == nil {
				_, err = stream.Recv()
			}
			return err != nil && strings.Contains(err.Error(), "this replica does not hear east, and others may; another replica of the resolver service may be better")
		})
	}
	other.within("the sidecar is there", func() bool { return left(at) == before+1 && other.resolver.stream.Instances() == 1 })
	if d := caller.Explain(t.Context(), orders); len(d.Routes) == 0 {
		t.Errorf("the sidecar has lost its view: %+v", d)
	}
	if left(at) != before+1 || left(other) != 0 {
		t.Errorf("sidecars have left %d times and %d times; want %d and 0", left(at), left(other), before+1)
	}
}
