package peering

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// When sidecars are sent to other replicas, and that it takes staleAfter of the peer.
func TestWhenAReplicaIsCutOff(t *testing.T) {
	const staleAfter = 10 * time.Second
	member := func(name string, hears ...string) instances.Member {
		return instances.Member{Replica: name, Hears: hears}
	}
	for _, c := range []struct {
		what   string
		hears  []string // of the peers east and north
		others []instances.Member
		want   string // who hears east
	}{
		{"all is well", []string{"east", "north"}, []instances.Member{member("r2", "east", "north")}, ""},
		{"another hears the peer, too", []string{"north"}, []instances.Member{member("r2", "east", "north"), member("r3", "north"), member("r4", "east", "north")}, "r2 r4"},
		{"another hears a peer of none", nil, []instances.Member{member("r2", "east")}, "r2"},
		{"nobody hears the peer", []string{"north"}, []instances.Member{member("r2", "north")}, ""},
		{"each hears another", []string{"north"}, []instances.Member{member("r2", "east")}, ""},
		{"there is no other replica", nil, nil, ""},
		{"the others are older and don't say", nil, []instances.Member{member("r2")}, ""},
	} {
		var away, told string
		hears := c.hears
		o := &CutOff{
			Reach: func() (all []Reach) {
				for _, p := range []string{"east", "north"} {
					all = append(all, Reach{Cluster: p, Heard: slices.Contains(hears, p), StaleAfter: staleAfter})
				}
				return all
			},
			Tell:   func(hears []string) { told = fmt.Sprint(hears) },
			Others: func() []instances.Member { return c.others },
			TurnAway: func(why string, sure bool) {
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
		o.AddStatus(status)
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
	o := &CutOff{
		Reach: func() []Reach {
			return []Reach{{Cluster: "east", Heard: heard, StaleAfter: staleAfter}, {Cluster: "north", Heard: true, StaleAfter: staleAfter}}
		},
		TurnAway: func(why string, sure bool) {
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
