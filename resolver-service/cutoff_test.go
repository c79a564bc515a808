package resolverservice

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/etcd"
	"github.com/isthmus-mesh/isthmus/resolver-service/peering"
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
			tell:     func(hears []string) { told = fmt.Sprint(hears) },
			others:   func() []etcd.Member { return c.others },
			turnAway: func(why string) { away = why },
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
