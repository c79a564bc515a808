package dial

import (
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/sandbox/stillness"
)

// patient is gRPC as it is after gateways were away for long: its next attempt is far off.
func patient() grpc.DialOption {
	return grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour}, MinConnectTimeout: time.Minute,
	})
}

// restart starts a gateway where one was.
func restart(t *testing.T, address string) *gateway {
	t.Helper()
	lis, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return startGatewayOn(t, lis)
}

// gone has a gateway end, and waits until a call fails.
func gone(t *testing.T, conn *grpc.ClientConn, gw *gateway) {
	t.Helper()
	gw.stop()
	for range 100 {
		_, err := call(t, conn)
		if err != nil {
			if status.Code(err) != codes.Unavailable {
				t.Fatalf("call to a gateway that is gone: %v", err)
			}
			return
		}
	}
	t.Fatal("calls to a gateway that is gone succeed")
}

// ledAway has had a call answered, and then lookups lead elsewhere and the gateway end.
func ledAway(t *testing.T) (gw *gateway, view *views, conn *grpc.ClientConn) {
	t.Helper()
	gw = startGateway(t)
	var names *Names
	names, view = eastLed(1, gw.Address)
	conn = mustDial(t, names, ordersInEast, patient())
	mustCall(t, conn)
	view.lead(0)
	gone(t, conn, gw)
	return gw, view, conn
}

func TestCallsWaitForAClusterThatLookupsComeBackTo(t *testing.T) {
	for name, after := range map[string]time.Duration{"its gateway is there": 0, "its gateway is a moment late": 300 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			for try := 1; ; try++ { // calls don't wait for longer than holdFor, which a slow machine can miss
				took, err := comesBack(t, after)
				if err == nil {
					return
				}
				if took < after+holdFor/2 || try == stillness.Tries {
					t.Fatalf("at try %d, %s after lookups came back: %v", try, took, err)
				}
				t.Logf("once more, since this machine took %s: %v", took, err)
			}
		})
	}
}

// comesBack has a gateway end, and start again so much later than lookups lead to it again. It
// tells how long after these the gateway was there, and the failed call ended, if one did.
func comesBack(t *testing.T, after time.Duration) (took time.Duration, err error) {
	gw, view, conn := ledAway(t)
	time.Sleep(callFor + 2*knockEvery) // until nobody knocks any more

	if after == 0 {
		restart(t, gw.Address)
	}
	view.lead(1)
	began := time.Now()
	if after > 0 {
		restarted := make(chan struct{})
		time.AfterFunc(after, func() { restart(t, gw.Address); close(restarted) })
		_, err := call(t, conn)
		if <-restarted; err != nil {
			return time.Since(began), err
		}
	}
	for range 100 {
		if _, err := call(t, conn); err != nil {
			return time.Since(began), err
		}
	}
	t.Logf("100 calls within %s", time.Since(began))
	return 0, nil
}

func TestCallsFailInTheEndWhenAClusterThatLookupsComeBackToIsNotThere(t *testing.T) {
	gw, view, conn := ledAway(t)
	began := time.Now()
	view.lead(1)
	if _, err := call(t, conn); status.Code(err) != codes.Unavailable {
		t.Fatalf("call: %v, want Unavailable", err)
	}
	if took := time.Since(began); took < holdFor/2 {
		t.Errorf("failed after %s, want to wait for about %s", took, holdFor)
	}
	// Later calls don't wait any more.
	for range 100 {
		if _, err := call(t, conn); status.Code(err) != codes.Unavailable {
			t.Fatalf("call: %v, want Unavailable", err)
		}
	}
	restart(t, gw.Address)
	recovers(t, conn, gw.Address)
}

// Lookups may lead to a cluster all along.
func TestAGatewayThatIsBackIsFoundByCallsThatFail(t *testing.T) {
	gw := startGateway(t)
	names, _ := east(gw.Address)
	conn := mustDial(t, names, ordersInEast, patient())
	mustCall(t, conn)
	gone(t, conn, gw)
	restart(t, gw.Address)
	began := time.Now()
	recovers(t, conn, gw.Address)
	t.Logf("found after %s", time.Since(began))
	for range 100 {
		mustCall(t, conn)
	}
}
