package peering

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func TestABudgetHoldsStreamsToSoManyAtOnceAndThenSoManyASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newStreamQuota()
		takes := func() (n int) {
			for b.allow() {
				n++
			}
			return n
		}
		if got := takes(); got != streamBurst {
			t.Errorf("%d at once, want %d", got, streamBurst)
		}
		time.Sleep(2 * time.Second)
		if got := takes(); got != 2*streamRate {
			t.Errorf("%d two seconds later, want %d", got, 2*streamRate)
		}
		time.Sleep(time.Hour)
		if got := takes(); got != streamBurst {
			t.Errorf("%d after an hour, want %d", got, streamBurst)
		}
		b.charge(3 * streamRate * streamExports)
		time.Sleep(3 * time.Second)
		if got := takes(); got != 0 {
			t.Errorf("%d while others are owed", got)
		}
		time.Sleep(time.Second)
		if got := takes(); got != streamRate {
			t.Errorf("%d once nothing is owed, want %d", got, streamRate)
		}
	})
}

// TestAPeerThatMakesStreamsInALoopIsToldItsExportsSoOften opens streams as fast as answers
// arrive, over one connection.
func TestAPeerThatMakesStreamsInALoopIsToldItsExportsSoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east := newSite(t, n, "east", exported("orders"))
		east.apply(runs("orders", "10.0.0.1:50002"))
		east.serve("east-gw")
		client := v1alpha1.NewPeeringClient(dialed(t, n, "evil", "east-gw:15443"))
		told := 0
		var refused error
		for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(4 * time.Millisecond) {
			err := askOnce(t.Context(), client, "evil")
			switch {
			case err == nil:
				told++
			case status.Code(err) != codes.Unavailable:
				t.Fatal(err)
			default:
				refused = err
			}
		}
		if most := streamBurst + 10*streamRate; told > most || told < most-streamRate {
			t.Errorf("told %d times in 10 s, want %d at most and not much less", told, most)
		}
		if refused == nil || !strings.Contains(refused.Error(), "cluster evil opened too many streams") {
			t.Errorf("refused with %v", refused)
		}
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw"))
		west.takes(time.Second, "another cluster is heard as ever", west.ok)
	})
}

// TestALinkThatIsRefusedForItsManyStreamsIsBackOnceItMay starts west when its quota is used up.
func TestALinkThatIsRefusedForItsManyStreamsIsBackOnceItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		east := newSite(t, n, "east", exported("orders"))
		east.apply(runs("orders", "10.0.0.1:50002"))
		east.serve("east-gw")
		by, leave, err := east.server.subscribers.add("west", func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		leave()
		const owed = 5 * time.Second
		by.quota.charge((streamBurst + int(owed.Seconds())*streamRate) * streamExports)
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "east-gw"))
		west.takes(time.Second, "said why", func() bool { return strings.Contains(west.status().Error, "may retry in a moment") })
		took := west.takes(owed+2*time.Second, "heard", west.ok)
		t.Logf("heard after %s", took)
		time.Sleep(time.Minute)
		if s := west.status(); s.Lapses != 0 || s.State != connected {
			t.Errorf("status %v", s)
		}
	})
}

// TestReplicasThatComeBackAllAtOnceAreNotRefused opens all streams that a cluster may have, by
// eight replicas, and then all of them again.
func TestReplicasThatComeBackAllAtOnceAreNotRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no time passes
		var a subscribers
		for range 2 {
			var leaves []func()
			for range maxStreams {
				by, leave, err := a.add("west", func(error) {})
				if err != nil {
					t.Fatal(err)
				}
				a.digest(by, topology.PeerKey{}, nil).of(viewOf(1, export("orders", 1)))
				leaves = append(leaves, leave, func() { a.releaseDigest(by, topology.PeerKey{}) })
			}
			for _, leave := range leaves {
				leave()
			}
		}
	})
}

func dialed(t *testing.T, n *peeringtest.Network, from, to string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+to, grpc.WithContextDialer(n.Host(from).Dial), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// askOnce opens a stream, waits for its first message and closes it.
func askOnce(ctx context.Context, client v1alpha1.PeeringClient, cluster string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.Exports(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&v1alpha1.ExportsRequest{Cluster: cluster}); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}
