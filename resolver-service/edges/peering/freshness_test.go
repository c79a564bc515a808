package peering

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// manyExports don't fit into one message.
func manyExports() topology.Change {
	long := strings.Repeat("n", 50)
	change := &topology.ObjectChange{}
	for i := range 800 {
		e := exported(fmt.Sprintf("app-%d", i))
		for j := range 10 {
			e.Allow = append(e.Allow, catalog.Allow{Cluster: "west", Namespace: long, App: fmt.Sprintf("%s-%d", long, j)})
		}
		change.Put = append(change.Put, e)
	}
	return topology.Change{Objects: change}
}

// halving is a resolver service whose stream of exports ends after the first part of a change,
// and can't be opened again. It still renews leases.
type halving struct {
	*Server
	halves atomic.Bool
	cut    atomic.Bool
}

// Exports is the stream of exports.
func (h *halving) Exports(to grpc.BidiStreamingServer[v1alpha1.ExportsRequest, v1alpha1.ExportsResponse]) error {
	if h.cut.Load() {
		return errHalved
	}
	return h.Server.Exports(halved{to, h})
}

var errHalved = status.Error(codes.Unavailable, "cut in half")

type halved struct {
	grpc.BidiStreamingServer[v1alpha1.ExportsRequest, v1alpha1.ExportsResponse]
	h *halving
}

// Send sends a message.
func (s halved) Send(m *v1alpha1.ExportsResponse) error {
	if s.h.cut.Load() {
		return errHalved
	}
	s.h.cut.Store(s.h.halves.Load() && len(m.GetPut()) > 0)
	return s.BidiStreamingServer.Send(m)
}

func TestRenewalsCountNoLongerWhilePartOfADifferenceIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east := newSite(t, n, "east", exported("orders"), at("west", 0, "west-gw"))
		east.apply(runs("orders", "10.0.0.1:50002"))
		h := &halving{Server: east.server}
		east.answer(h, "east-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw"))
		west.takes(time.Second, "heard", west.ok)
		time.Sleep(time.Minute)
		h.halves.Store(true)
		east.apply(manyExports())
		west.takes(10*time.Second, "the first part", func() bool { return west.status().Exports > 1 })
		if got := west.status().Exports; got >= 801 {
			t.Fatalf("%d exports: the difference came whole", got)
		}
		took := west.takes(2*stuckAfter, "stale", west.staleNow)
		t.Logf("%d exports of 801 known; not relied on after %s", west.status().Exports, took)
		time.Sleep(time.Minute)
		if !west.staleNow() {
			t.Error("relied on again, and a part is missing")
		}
		h.halves.Store(false)
		h.cut.Store(false)
		west.takes(10*time.Second, "relied on again", west.ok)
		if got := west.status().Exports; got != 801 {
			t.Errorf("%d exports are known of 801", got)
		}
	})
}

func TestADigestIsNamedWithTheLastPartOnly(t *testing.T) {
	o := newOutbox("east", nil)
	s := &serverStream{Server: &Server{}, digest: &viewDigest{}, pings: &pings{}}
	for revision, exports := range [][]*topology.PeerExport{{export("ledger", 1)}, large()[:6000], nil} {
		view := viewOf(uint64(revision+1), exports...)
		all := 0
		var last *v1alpha1.ExportsResponse
		for m, err := range o.messages(view) {
			if err != nil {
				t.Fatal(err)
			}
			if last != nil && last.Digest != 0 {
				t.Errorf("revision %d: message %d has the digest, and is not the last", view.Revision, all)
			}
			last, all = s.complete(m, o.completes(view)), all+1
		}
		if last.Digest != s.digest.of(view) || revision == 1 && all < 2 {
			t.Errorf("revision %d: the last of %d messages has digest %x, want %x", view.Revision, all, last.Digest, s.digest.of(view))
		}
	}
}

// large are exports that don't fit into one message.
func large() (all []*topology.PeerExport) {
	for i := range 20_000 {
		e := export(fmt.Sprintf("an-app-with-a-long-name-%d", i), 1)
		e.Allow[0].App = strings.Repeat("c", 60)
		all = append(all, e)
	}
	return all
}

func TestALapsedLeaseDoesNotBeginAnewWithPartOfADifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west := newSite(t, peeringtest.New(1), "west")
		l := newLink(west.links, at("east", time.Second, "east-gw"))
		defer l.lease.stop()
		var err error
		if l.need, err = west.topology.Need(t.Context(), "east"); err != nil {
			t.Fatal(err)
		}
		defer l.need.Close()
		hear := func(m *v1alpha1.ExportsResponse) bool {
			m.Cluster = "east"
			go func() {
				w := <-l.updates
				l.receive(w)
				close(w.done)
			}()
			if err := l.deliver(t.Context(), m, false, time.Now()); err != nil {
				t.Fatal(err)
			}
			l.lastApply = time.Time{}
			l.applySoon(t.Context())
			return l.lease.state().fresh
		}
		l.mirror.resume()
		if !hear(&v1alpha1.ExportsResponse{Digest: 100, Put: message(t, []*topology.PeerExport{export("x", 1)}).Put}) {
			t.Fatal("not heard")
		}
		time.Sleep(time.Minute)
		l.lease.tick() // late, so the lease gets a grace
		time.Sleep(lateTimerGrace)
		if l.lease.tick(); l.lease.state().fresh {
			t.Fatal("the lease holds for a minute")
		}
		if hear(&v1alpha1.ExportsResponse{Put: message(t, []*topology.PeerExport{export("y", 1)}).Put}) {
			t.Error("heard with a part")
		}
		for _, digest := range []uint64{100, 200} {
			if l.freshness.acceptRenewal(digest, l.lease.state()) {
				t.Errorf("renewed by digest %d", digest)
			}
		}
		if !hear(&v1alpha1.ExportsResponse{Digest: 200, Put: message(t, []*topology.PeerExport{export("z", 1)}).Put}) {
			t.Error("not heard with all of it")
		}
		if !l.freshness.acceptRenewal(200, l.lease.state()) {
			t.Error("not renewed")
		}
	})
}
