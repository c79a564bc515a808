package check

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// Fifty peers whose gateways are silent take no longer than one, and however many there are, no
// more than maxVisits are tried at a time.
func TestGatewaysAreTriedSideBySide(t *testing.T) {
	for peers, want := range map[int]int64{50: 100, maxVisits + 50: 2 * maxVisits} {
		open, address := silence(t)
		app := identity.ServiceApp("", "west")
		source, err := identity.New(identitytest.NewCA(t).Config(app), app, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if err := source.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		p := NewProber(source, "", "isthmus.internal")
		p.Within = time.Hour
		f := &Facts{Now: time.Now(), Status: &v1alpha1.StatusResponse{Cluster: "west"}, MayWrite: func(context.Context) error { return nil }, Prober: p}
		for n := range peers {
			f.Status.Peers = append(f.Status.Peers, &v1alpha1.PeerStatus{Cluster: fmt.Sprint("peer-", n), Gateways: []*v1alpha1.GatewayStatus{{Address: address}}})
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = Run(ctx, f, func([]Result) error { return nil }) })
		serverstest.Await(t, fmt.Sprintf("%d connections at a time", want), func() bool { return open.Load() == want })
		cancel()
		running.Wait()
		if most := open.Load(); most > want && peers == 50 {
			t.Errorf("%d connections", most)
		}
	}
}

// silence takes connections and answers nothing. It counts those that it has taken and that sent
// something.
func silence(t *testing.T) (*atomic.Int64, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var open atomic.Int64
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				open.Add(1)
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	return &open, l.Addr().String()
}
