package dial

import (
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// link is how probes to an address fare, in simulated time.
type link struct {
	trip time.Duration // there and back
	loss float64       // of each packet
	down atomic.Bool
}

// knock is a TCP handshake: a lost packet is sent again after 1 s, then 2, then 4.
func (l *link) knock(ctx context.Context, g *gate) outcome {
	took := l.trip
	for again := time.Second; l.down.Load() || rand.Float64() < l.loss || rand.Float64() < l.loss; again *= 2 {
		select {
		case <-ctx.Done():
			return unanswered
		case <-time.After(again):
		}
		took += again
	}
	select {
	case <-ctx.Done():
		return unanswered
	case <-time.After(l.trip):
		g.took(took)
		return answered
	}
}

// pairOf makes two gates with a connection each, over links of their own.
func pairOf(first, second *link) (a, b *gate, leave func()) {
	f := newFleet("east", slog.New(slog.NewTextHandler(io.Discard, nil)))
	a, b = f.use("10.0.0.1:1"), f.use("10.0.0.2:1")
	f.knock = func(ctx context.Context, g *gate) outcome {
		return map[*gate]*link{a: first, b: second}[g].knock(ctx, g)
	}
	for g, l := range map[*gate]*link{a: first, b: second} {
		socket, far := net.Pipe()
		_ = far.Close()
		g.join(&conn{Conn: socket, gate: g})
		g.took(l.trip)
	}
	return a, b, func() { a.leave(); b.leave() }
}

// talks has a gate say something about every so often, until ctx ends.
func talks(ctx context.Context, g *gate, every time.Duration) {
	for ctx.Err() == nil {
		time.Sleep(every)
		g.words.Add(1)
	}
}

// Hours of calls of which no answer comes for seconds, over a link with 300 ms each way
// that loses 5 % of all packets: never is the gateway taken for gone.
func TestASlowLossyLinkIsNotTakenForDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &link{trip: 600 * time.Millisecond, loss: 0.05}
		a, _, leave := pairOf(slow, &link{trip: time.Millisecond})
		a.begin()
		time.Sleep(8 * time.Hour)
		if !a.connected() {
			t.Error("the connection was broken off")
		}
		a.end()
		leave()
	})
}

// How soon a gateway is found gone, on links of several lengths.
func TestAGatewayThatIsGoneIsFound(t *testing.T) {
	for _, c := range []struct{ trip, within time.Duration }{
		{time.Millisecond, 800 * time.Millisecond},
		{50 * time.Millisecond, 800 * time.Millisecond},
		{200 * time.Millisecond, 1100 * time.Millisecond},
		{600 * time.Millisecond, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			first := &link{trip: c.trip}
			a, _, leave := pairOf(first, &link{trip: c.trip})
			a.begin()
			time.Sleep(10 * time.Millisecond)
			first.down.Store(true)
			began := time.Now()
			for a.connected() && time.Since(began) < time.Minute {
				time.Sleep(time.Millisecond)
			}
			t.Logf("there and back %s: found gone after %s", c.trip, time.Since(began))
			if took := time.Since(began); took > c.within {
				t.Errorf("there and back %s: found gone after %s, want %s", c.trip, took, c.within)
			}
			a.end()
			leave()
		})
	}
}

// The way to all gateways becomes long from one moment to the next. What comes from the
// others was sent before.
func TestALinkThatBecomesSlowIsNotTakenForDead(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			both := &link{trip: 600 * time.Millisecond, loss: 0.05}
			a, b, leave := pairOf(both, both)
			a.trip.Store(int64(time.Millisecond))
			b.trip.Store(int64(time.Millisecond))
			ctx, stop := context.WithCancel(t.Context())
			go talks(ctx, b, 90*time.Millisecond)
			a.begin()
			b.begin()
			time.Sleep(time.Minute)
			if !a.connected() || !b.connected() {
				t.Error("a connection was broken off")
			}
			stop()
			time.Sleep(time.Second) // lets it notice
			a.end()
			b.end()
			leave()
		})
	}
}

func TestWhoCannotReachAnyGatewayBreaksNoneOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := &link{trip: time.Millisecond}, &link{trip: time.Millisecond}
		first.down.Store(true)
		second.down.Store(true)
		a, b, leave := pairOf(first, second)
		a.begin()
		b.begin()
		time.Sleep(time.Minute)
		if !a.connected() || !b.connected() {
			t.Error("a connection was broken off with nothing better to be had")
		}
		second.down.Store(false) // now there is
		time.Sleep(5 * time.Second)
		if a.connected() || !b.connected() {
			t.Error("the other gateway is back, and the silent one was not given up")
		}
		a.end()
		b.end()
		leave()
	})
}

// What a gateway says counts for it, whatever becomes of probes: a firewall may let no
// new connection in.
func TestAGatewayThatTalksIsNotProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := &link{trip: time.Millisecond}
		deaf.down.Store(true)
		a, _, leave := pairOf(deaf, &link{trip: time.Millisecond})
		ctx, stop := context.WithCancel(t.Context())
		go talks(ctx, a, 140*time.Millisecond)
		a.begin()
		time.Sleep(time.Hour)
		if !a.connected() || a.doubted.Load() {
			t.Error("a gateway that talks was given up")
		}
		stop()
		time.Sleep(time.Second) // lets it notice
		a.end()
		leave()
	})
}

// The watch ends with the calls, and costs nothing then.
func TestNobodyWatchesAGatewayWithoutCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, leave := pairOf(&link{}, &link{})
		defer leave()
		for range 3 {
			a.begin()
			if !a.watched.Load() {
				t.Error("a call has begun, and nobody watches")
			}
			a.end()
			time.Sleep(2 * restAfter)
			if a.watched.Load() {
				t.Error("there is no call, and it is being watched")
			}
		}
	})
}

// Only one gateway: nothing can be won, so nothing is asked.
func TestASingleGatewayIsNeverProbed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet("east", slog.New(slog.NewTextHandler(io.Discard, nil)))
		f.knock = func(context.Context, *gate) outcome { t.Error("probed"); return answered }
		a := f.use("10.0.0.1:1")
		a.begin()
		time.Sleep(time.Minute)
		a.end()
		a.leave()
		if len(f.gates) != 0 {
			t.Errorf("%d gates are left of none in use", len(f.gates))
		}
	})
}
