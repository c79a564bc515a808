package peering

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// hostile is a peer that sends what a test tells it to send.
type hostile struct {
	v1alpha1.UnimplementedPeeringServer
	exports func(exportsServer) error
	renew   func(renewServer) error
	asked   atomic.Int64
	sent    atomic.Int64
}

type renewServer = grpc.BidiStreamingServer[v1alpha1.RenewRequest, v1alpha1.RenewResponse]

func (h *hostile) Exports(to exportsServer) error {
	h.asked.Add(1)
	_, p, err := receiveFirst(to.Context(), to.Recv, &interest{})
	if err != nil {
		return err
	}
	return h.exports(echoing(to, func(m *v1alpha1.ExportsResponse) { m.Echo = p.latest.Load() }))
}

// echoing is a stream whose messages answer pings, as echo decides.
func echoing[Request, Response any](to grpc.BidiStreamingServer[Request, Response], echo func(*Response)) grpc.BidiStreamingServer[Request, Response] {
	return echoes[Request, Response]{to, echo}
}

type echoes[Request, Response any] struct {
	grpc.BidiStreamingServer[Request, Response]
	echo func(*Response)
}

func (e echoes[Request, Response]) Send(m *Response) error {
	e.echo(m)
	return e.BidiStreamingServer.Send(m)
}

func (h *hostile) Renew(to renewServer) error {
	if h.renew == nil {
		<-to.Context().Done()
		return nil
	}
	_, p, err := receiveFirst(to.Context(), to.Recv, &interest{})
	if err != nil {
		return err
	}
	return h.renew(echoing(to, func(m *v1alpha1.RenewResponse) { m.Echo = p.latest.Load() }))
}

// send sends a message again and again, as fast as it is taken.
func (h *hostile) send(to exportsServer, make func(i int) *v1alpha1.ExportsResponse) error {
	for i := 0; ; i++ {
		if err := to.Send(make(i)); err != nil {
			return err
		}
		h.sent.Add(1)
	}
}

// besides runs west with a well-behaved peer, east, and a hostile one, evil. It measures how long
// changes in east take to reach west.
func besides(t *testing.T, h *hostile, during func(west *site)) (worst time.Duration) {
	n := peeringtest.New(1)
	east := newSite(t, n, "east", exported("orders"))
	east.apply(runs("orders", "10.0.0.1:50002"))
	east.serve("east-gw")
	evil := newSite(t, n, "evil")
	evil.server = nil
	evil.answer(h, "evil-gw")
	west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 10*time.Second, "east-gw"), at("evil", 10*time.Second, "evil-gw"))
	west.takes(5*time.Second, "heard", west.ok)
	during(west)
	for i := range 20 {
		withdrawn := topology.Change{Instances: []topology.InstanceChange{{Source: "test", Full: true}}}
		start := time.Now()
		if i%2 == 0 {
			east.apply(withdrawn)
		} else {
			east.apply(runs("orders", "10.0.0.1:50002"))
		}
		west.takes(10*time.Second, "a change of east's", func() bool { return west.ok() == (i%2 == 1) })
		worst = max(worst, time.Since(start))
		time.Sleep(20 * time.Millisecond)
	}
	return worst
}

func peer(l *Links, cluster string) *v1alpha1.PeerStatus {
	for _, p := range l.Status() {
		if p.Cluster == cluster {
			return p
		}
	}
	return &v1alpha1.PeerStatus{}
}

func wireExport(i int, ready uint32) *v1alpha1.Export {
	return &v1alpha1.Export{App: &v1alpha1.App{Namespace: "evil", Id: fmt.Sprint("a", i)}, Ready: ready, Digest: uint64(i)}
}

func TestOnePeerDisturbsNoOther(t *testing.T) {
	// West pauses between two changes of one peer, and east pauses before it sends the next. The
	// evil peer causes any longer delay.
	const late = applyInterval + sendPause + 20*time.Millisecond
	type say = func(i int) *v1alpha1.ExportsResponse
	for _, c := range []struct {
		what string
		many bool   // takes minutes with the race detector
		say  say    // sent as fast as it is read; nil: nothing
		ends error  // each stream at once
		told string // of it in status
	}{
		{what: "it floods with changes", say: func(i int) *v1alpha1.ExportsResponse {
			return &v1alpha1.ExportsResponse{Cluster: "evil", Revision: uint64(i + 1), Put: []*v1alpha1.Export{wireExport(i%100, uint32(i%1000))}}
		}},
		{what: "its first set never ends", many: true, say: func(i int) *v1alpha1.ExportsResponse {
			m := &v1alpha1.ExportsResponse{Cluster: "evil", Revision: 1, More: true}
			for j := range 1000 {
				m.Put = append(m.Put, wireExport((i*1000+j)%50_000, 1))
			}
			return m
		}},
		{what: "it exports more than is taken", many: true, told: "exports more than 100000 apps", say: func(i int) *v1alpha1.ExportsResponse {
			m := &v1alpha1.ExportsResponse{Cluster: "evil", Revision: 1, More: true}
			for j := range 5000 {
				m.Put = append(m.Put, wireExport(i*5000+j, 1))
			}
			return m
		}},
		{what: "its messages are too long", told: "larger than max", say: func(int) *v1alpha1.ExportsResponse {
			return &v1alpha1.ExportsResponse{Cluster: "evil", Hears: strings.Repeat("x", maxMessage)}
		}},
		{what: "it has another name", told: `gateways lead to cluster`, say: func(int) *v1alpha1.ExportsResponse {
			return &v1alpha1.ExportsResponse{Cluster: "east", Put: []*v1alpha1.Export{wireExport(1, 1)}}
		}},
		{what: "it says nothing"},
		{what: "it ends each stream at once", ends: errors.New("go away"), told: "go away"},
	} {
		if c.many && raced.Enabled {
			continue
		}
		h := &hostile{}
		h.exports = func(to exportsServer) error {
			switch {
			case c.ends != nil:
				return c.ends
			case c.say != nil:
				return h.send(to, c.say)
			}
			<-to.Context().Done()
			return nil
		}
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent int64
				var start time.Time
				worst := besides(t, h, func(west *site) {
					west.takes(20*time.Second, "what is said of the evil one", func() bool {
						return h.asked.Load() > 0 && strings.Contains(fmt.Sprint(peer(west.links, "evil")), c.told)
					})
					start, sent = time.Now(), h.sent.Load()
					time.Sleep(10 * time.Second)
				})
				asked, rate := h.asked.Load(), float64(h.sent.Load()-sent)/time.Since(start).Seconds()
				t.Logf("a change of another peer took %s at most; the evil one was asked %d times, and read %.0f messages/s from", worst, asked, rate)
				if worst > late {
					t.Errorf("a change of another peer took %s", worst)
				}
				if asked > 30 {
					t.Errorf("it was asked %d times", asked)
				}
			})
		})
	}
}

func TestAPeerThatBreaksOffInTheMiddleTakesNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		var stream atomic.Int64
		h := &hostile{}
		h.exports = func(to exportsServer) error {
			first := &v1alpha1.ExportsResponse{Cluster: "evil", Revision: 1, More: true, Put: message(t, []*topology.PeerExport{export("orders", 1)}).Put}
			second := &v1alpha1.ExportsResponse{Cluster: "evil", Revision: 1, Put: message(t, []*topology.PeerExport{export("ledger", 1)}).Put}
			switch stream.Add(1) {
			case 1: // complete
				_ = to.Send(first)
				_ = to.Send(second)
				time.Sleep(5 * time.Second)
				return fmt.Errorf("ends")
			case 2, 3, 4: // incomplete
				_ = to.Send(first)
				time.Sleep(time.Second)
				return fmt.Errorf("breaks off")
			default: // complete, and without ledger
				first.More = false
				first.Removed = []*v1alpha1.App{{Namespace: "shop", Id: "ledger"}}
				_ = to.Send(first)
				<-to.Context().Done()
				return nil
			}
		}
		evil := newSite(t, n, "evil")
		evil.server = nil
		evil.answer(h, "evil-gw")
		west := newSite(t, n, "west", selection("checkout", "orders", "ledger"), at("evil", 10*time.Second, "evil-gw"))
		heard := func() bool {
			return west.outcome("checkout", "orders") == "ok evil" && west.outcome("checkout", "ledger") == "ok evil"
		}
		west.takes(time.Second, "heard", heard)
		for stream.Load() < 5 {
			time.Sleep(10 * time.Millisecond)
			if stream.Load() < 5 && !heard() {
				t.Fatalf("stream %d took something back", stream.Load())
			}
		}
		west.takes(time.Second, "ledger withdrawn", func() bool { return west.outcome("checkout", "ledger") == "unavailable" })
	})
}

func TestNothingOfAPeerCountsBeforeItsFirstSetIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		h := &hostile{}
		h.exports = func(to exportsServer) error {
			m := &v1alpha1.ExportsResponse{Cluster: "evil", Revision: 1, More: true, Put: message(t, []*topology.PeerExport{export("orders", 1)}).Put}
			for range 100 {
				if err := to.Send(m); err != nil {
					return err
				}
				time.Sleep(time.Second)
			}
			m.More = false
			_ = to.Send(m)
			<-to.Context().Done()
			return nil
		}
		evil := newSite(t, n, "evil")
		evil.server = nil
		evil.answer(h, "evil-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("evil", 10*time.Second, "evil-gw"))
		time.Sleep(99 * time.Second)
		if got := west.outcome("checkout", "orders"); got == "ok evil" {
			t.Error("it counts")
		}
		if s := west.status(); s.Lapses != 0 || s.State != connecting {
			t.Errorf("status %v", s)
		}
		west.takes(3*time.Second, "heard", func() bool { return west.outcome("checkout", "orders") == "ok evil" })
	})
}

func TestAFirstSetThatNeverEndsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		h := &hostile{}
		h.exports = func(to exportsServer) error {
			return h.send(to, func(int) *v1alpha1.ExportsResponse {
				time.Sleep(time.Second)
				return &v1alpha1.ExportsResponse{Cluster: "evil", Revision: 1, More: true}
			})
		}
		evil := newSite(t, n, "evil")
		evil.server = nil
		evil.answer(h, "evil-gw")
		west := newSite(t, n, "west", at("evil", 10*time.Second, "evil-gw"))
		west.takes(firstSetWithin+5*time.Second, "said so", func() bool {
			return strings.Contains(west.status().Error, "has not sent all its exports")
		})
	})
}

func TestRenewalsAloneDoNotKeepWhatIsLongPast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		var digest atomic.Uint64
		digest.Store(1)
		h := &hostile{}
		h.exports = func(to exportsServer) error {
			if h.asked.Load() > 1 {
				return fmt.Errorf("no exports today")
			}
			_ = to.Send(&v1alpha1.ExportsResponse{Cluster: "evil", Revision: 1, Digest: 1, Put: message(t, []*topology.PeerExport{export("orders", 1)}).Put})
			time.Sleep(5 * time.Second)
			return fmt.Errorf("no exports today")
		}
		h.renew = func(to renewServer) error {
			for {
				if err := to.Send(&v1alpha1.RenewResponse{Cluster: "evil", Digest: digest.Load()}); err != nil {
					return err
				}
				time.Sleep(250 * time.Millisecond)
			}
		}
		evil := newSite(t, n, "evil")
		evil.server = nil
		evil.answer(h, "evil-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("evil", 2*time.Second, "evil-gw"))
		ok := func() bool { return west.outcome("checkout", "orders") == "ok evil" }
		west.takes(time.Second, "heard", ok)
		time.Sleep(10 * time.Minute)
		if !ok() {
			t.Errorf("nothing has changed there, and its renewals don't count: %v", west.status())
		}
		digest.Store(2)
		took := west.takes(time.Minute, "stale", west.staleNow)
		if took < stuckAfter || took > stuckAfter+3*time.Second {
			t.Errorf("what was said before the change stood for %s", took)
		}
		if s := west.status(); !strings.Contains(s.Error, "no exports today") {
			t.Errorf("status %v", s)
		}
	})
}

func TestAStreamThatIsStuckIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		h := &hostile{}
		h.exports = func(to exportsServer) error {
			m := &v1alpha1.ExportsResponse{Cluster: "evil", Revision: 1, Digest: uint64(h.asked.Load())}
			for {
				if err := to.Send(m); err != nil {
					return err
				}
				time.Sleep(time.Second)
			}
		}
		h.renew = func(to renewServer) error {
			for {
				if err := to.Send(&v1alpha1.RenewResponse{Cluster: "evil", Digest: 1_000_000}); err != nil {
					return err
				}
				time.Sleep(250 * time.Millisecond)
			}
		}
		evil := newSite(t, n, "evil")
		evil.server = nil
		evil.answer(h, "evil-gw")
		west := newSite(t, n, "west", at("evil", 10*time.Second, "evil-gw"))
		west.takes(stuckAfter+5*time.Second, "asked anew", func() bool { return h.asked.Load() == 2 })
		time.Sleep(10 * time.Minute)
		if asked := h.asked.Load(); asked < 4 || asked > 10 {
			t.Errorf("asked %d times in 10 min by one that is always behind; want less and less often", asked)
		}
		if s := west.status(); s.Lapses != 0 {
			t.Errorf("status %v", s)
		}
	})
}

func TestAServerReadsSoMuchOfOneStreamInASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		large := &v1alpha1.RenewRequest{Cluster: strings.Repeat("A", maxMessage), Ping: 1}
		var read atomic.Int64
		_, _, err := receiveFirst(ctx, func() (*v1alpha1.RenewRequest, error) {
			read.Add(maxMessage)
			return large, ctx.Err()
		}, &interest{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if most := int64(10 * time.Second / readWindow * readBytes); read.Load() > most+2*maxMessage {
			t.Errorf("read %d bytes in 10 s, at most %d are meant to be", read.Load(), most)
		}
		cancel()
	})
}

func TestAServerEndsTheOldestOfTooManyStreams(t *testing.T) {
	var a subscribers
	var ended []int
	var mu sync.Mutex
	var leaves []func()
	for i := range maxRunning {
		_, leave, err := a.add("west", func(error) { mu.Lock(); ended = append(ended, i); mu.Unlock() })
		if err != nil {
			t.Fatalf("stream %d is not taken: %v", i, err)
		}
		leaves = append(leaves, leave)
	}
	if _, _, err := a.add("west", func(error) {}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("none of those that were ended is gone, and one more ends with %v", err)
	}
	if _, leave, err := a.add("north", func(error) {}); err != nil {
		t.Errorf("another cluster is not taken: %v", err)
	} else {
		leave()
	}
	if len(ended) != maxRunning-maxStreams || ended[0] != 0 {
		t.Errorf("ended %v", ended)
	}
	if streams, _, _ := a.streamsOf("west"); streams != maxStreams {
		t.Errorf("%d streams", streams)
	}
	for _, leave := range leaves {
		leave()
	}
	if streams, since, _ := a.streamsOf("west"); streams != 0 || since.IsZero() {
		t.Errorf("%d streams, none since %s", streams, since)
	}
	for i := range maxSubscribers + 100 {
		_, leave, err := a.add(fmt.Sprint("c", i), func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		leave()
	}
	if len(a.byCluster) > maxSubscribers {
		t.Errorf("%d clusters are remembered", len(a.byCluster))
	}
}

// BenchmarkALargeFirstSet measures how long 100,000 exports take to come in, and how long
// another change waits for the topology's owner meanwhile.
func BenchmarkALargeFirstSet(b *testing.B) {
	var exports []catalog.Object
	for i := range maxExports {
		exports = append(exports, exported(fmt.Sprintf("app-%d", i)))
	}
	n := peeringtest.New(1)
	east := newSite(b, n, "east", exports...)
	east.serve("east-gw")
	var worst time.Duration
	for i := 0; b.Loop(); i++ {
		west := newSite(b, n, fmt.Sprint("west", i), selection("checkout", "app-99999"), at("east", 10*time.Second, "east-gw"))
		for i := 0; peer(west.links, "east").State != connected; i++ {
			before := time.Now()
			west.apply(runs("local", fmt.Sprintf("10.0.0.%d:50002", i%200+1)))
			worst = max(worst, time.Since(before))
			time.Sleep(time.Millisecond)
		}
	}
	b.ReportMetric(float64(worst.Microseconds())/1000, "worst-wait-ms")
}

func TestALargeFirstSetComesInWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		var exports []catalog.Object
		for i := range 20_000 {
			exports = append(exports, exported(fmt.Sprintf("app-%d", i)))
		}
		east := newSite(t, n, "east", append(exports, exported("orders"))...)
		east.apply(runs("orders", "10.0.0.1:50002"))
		east.serve("east-gw")
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 10*time.Second, "east-gw"))
		took := west.takes(5*time.Second, "heard", west.ok)
		if s := west.status(); s.Exports != 20_001 || s.Ready != 1 {
			t.Errorf("status %v", s)
		}
		t.Logf("in %s, which is what the pauses take", took)
	})
}
