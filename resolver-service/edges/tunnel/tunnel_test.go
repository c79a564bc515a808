package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

func TestATunnelThatIsCutIsMadeAnew(t *testing.T) {
	westID, northID := two(t)
	w := accepts(t, westID, "north")
	dials(t, "north", northID, w.listener.Addr().String())
	eventually(t, "a tunnel", func() bool { return w.open("north") == 1 })
	ctx := t.Context()
	held, err := w.Open(ctx, "north")
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := w.echo("north"); err != nil {
			t.Fatal(err)
		}
		w.cut(t)
		if err := w.echo("north"); err != nil { // it waits for the next
			t.Errorf("right after a tunnel was cut: %v", err)
		}
	}
	if err := echo(held); err == nil {
		t.Error("a stream outlives its tunnel")
	}
	held.Close()
}

func TestAClusterWithoutATunnelIsRefusedAtOnce(t *testing.T) {
	westID, _ := two(t)
	w := accepts(t, westID, "north")
	w.Accepter.mu.Lock()
	w.accepted["north"].since = time.Now().Add(-time.Hour)
	w.Accepter.mu.Unlock()
	began := time.Now()
	_, err := w.Open(t.Context(), "north")
	if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(began) > patience/4 {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
	if _, err := w.Open(t.Context(), "south"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a cluster that may not dial: %v", err)
	}
}

// The end that leaves gets no more streams, and those that run may finish.
func TestAnEndThatLeavesLetsStreamsFinish(t *testing.T) {
	westID, northID := two(t)
	w := accepts(t, westID, "north")
	first := dials(t, "north", northID, w.listener.Addr().String())
	eventually(t, "a tunnel", func() bool { return w.open("north") == 1 })
	held, err := w.Open(t.Context(), "north")
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	dials(t, "north", northID, w.listener.Addr().String()) // a successor
	eventually(t, "two tunnels", func() bool { return w.open("north") == 2 })
	first.Leave()
	for range 20 {
		s, err := w.Open(t.Context(), "north")
		if err != nil {
			t.Fatal(err)
		}
		if err := echo(s); err != nil {
			t.Error(err)
		}
		first.all()[0].eachTunnel(func(o *outward) {
			if n := o.session.Streams(); n != 1 {
				t.Errorf("%d streams in a tunnel that is leaving; want the one that it had", n)
			}
		})
		s.Close()
	}
	if err := echo(held); err != nil {
		t.Errorf("a stream that ran was cut: %v", err)
	}
}

func TestAnAccepterThatLeavesIsDialledAnew(t *testing.T) {
	westID, northID := two(t)
	old, next := accepts(t, westID, "north"), accepts(t, westID, "north")
	dials(t, "north", northID, old.listener.Addr().String(), next.listener.Addr().String())
	eventually(t, "a tunnel", func() bool { return old.open("north")+next.open("north") == 1 })
	if next.open("north") == 1 {
		old, next = next, old
	}
	held, err := old.Open(t.Context(), "north")
	if err != nil {
		t.Fatal(err)
	}
	old.listener.Close()
	old.Leave()
	eventually(t, "a tunnel to the other", func() bool { return next.open("north") == 1 })
	if err := next.echo("north"); err != nil {
		t.Error(err)
	}
	if err := echo(held); err != nil {
		t.Errorf("a stream that ran was cut: %v", err)
	}
	held.Close()
	eventually(t, "the end of the old tunnel with its last stream", func() bool { return old.open("north") == 0 })
}

// Replicas get a tunnel each, although a load balancer leads each connection anywhere. So does one
// that is rolled, while its callers wait.
func TestEachReplicaGetsATunnel(t *testing.T) {
	westID, northID := two(t)
	replica := func() *west {
		w := accepts(t, westID, "north")
		w.cfg.Several = true
		return w
	}
	var mu sync.Mutex
	replicas := []*west{replica(), replica(), replica()}
	dialsBy(t, northID, func(ctx context.Context, _ string) (net.Conn, error) {
		mu.Lock()
		at := replicas[rand.N(len(replicas))].listener.Addr().String()
		mu.Unlock()
		return new(net.Dialer).DialContext(ctx, "tcp", at)
	})
	each := func() bool {
		for _, w := range replicas {
			if w.open("north") != 1 {
				return false
			}
		}
		return true
	}
	eventually(t, "a tunnel to each", each)
	replicas[1].cut(t)
	eventually(t, "the one that was cut", each)
	for range 2 {
		old, next := replicas[0], replica()
		mu.Lock()
		replicas = append(replicas[1:], next)
		mu.Unlock()
		began := time.Now()
		old.listener.Close()
		old.Leave()
		if err := next.echo("north"); err != nil { // it waits
			t.Errorf("a call by a replica that has begun: %v", err)
		}
		t.Logf("a replica that has begun had a tunnel after %v", time.Since(began).Round(time.Millisecond))
		eventually(t, "a tunnel to each, and none to the one that has left", func() bool { return each() && old.open("north") == 0 })
	}
}

// Certificates that end are followed by others, and no stream notices.
func TestATunnelLivesByTheNewestCertificates(t *testing.T) {
	for _, lifetime := range []time.Duration{8 * time.Second, 20 * time.Second, 45 * time.Second} { // on a slow machine
		if wrong := livesOn(t, lifetime); wrong == nil {
			return
		} else if lifetime == 45*time.Second {
			t.Error(wrong)
		}
	}
}

func livesOn(t *testing.T, lifetime time.Duration) error {
	short := func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Second), time.Now().Add(lifetime)
	}
	westCA, northCA := identitytest.NewCA(t), identitytest.NewCA(t)
	config := northCA.Config(identity.ServiceApp("", "north"), short)
	northID, err := identity.New(config, identity.ServiceApp("", "north"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { northID.Run(ctx); close(ended) }()
	defer func() { cancel(); <-ended }()
	northID.SetPeers("", map[string]catalog.Trust{"west": {Roots: string(westCA.PEM())}})
	w := accepts(t, source(t, "west", westCA, "north", northCA), "north")
	defer w.stop()
	dials(t, "north", northID, w.listener.Addr().String())
	eventually(t, "a tunnel", func() bool { return w.open("north") == 1 })
	held, err := w.Open(t.Context(), "north")
	if err != nil {
		return err
	}
	defer held.Close()
	for end := time.Now().Add(2 * lifetime); time.Now().Before(end); time.Sleep(lifetime / 3) {
		pair := northCA.Issue(identity.ServiceApp("", "north"), short)
		identitytest.Write(t, config.Files.Key, pair.Key)
		identitytest.Write(t, config.Files.Cert, pair.Cert)
		if err := echo(held); err != nil {
			return fmt.Errorf("a stream ended with a certificate: %w", err)
		}
	}
	return nil
}

// What a cluster that accepts can open in another one's service is bounded, and it goes on.
func TestAFloodOfStreamsIsBounded(t *testing.T) {
	westID, northID := two(t)
	w := accepts(t, westID, "north")
	d := NewDialer(Config{Cluster: "north", Domain: catalog.DefaultDomain, Identity: northID, Log: slog.New(slog.DiscardHandler)})
	var clusters live.Value[[]*catalog.Cluster]
	clusters.Store([]*catalog.Cluster{{Name: "west", Tunnel: catalog.TunnelDial, Gateways: []string{w.listener.Addr().String()}}})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { d.Run(ctx, &clusters); close(ended) }()
	defer func() { cancel(); <-ended; d.End() }()
	eventually(t, "a tunnel", func() bool { return w.open("north") == 1 })
	for range 10 * backlog { // and nobody takes them
		if s, err := w.Open(t.Context(), "north"); err == nil {
			s.Write([]byte("hello"))
			defer s.Close()
		}
	}
	eventually(t, "those beyond the backlog reset", func() bool {
		w.Accepter.mu.Lock()
		defer w.Accepter.mu.Unlock()
		return w.accepted["north"].tunnels[0].session.Streams() <= backlog
	})
}

// A thousand clusters dial one service.
func TestAThousandTunnelsTakeBoundedMemory(t *testing.T) {
	const tunnels = 1000
	westCA, northCA := identitytest.NewCA(t), identitytest.NewCA(t)
	names, trust := make([]string, tunnels), map[string]catalog.Trust{}
	for i := range names {
		names[i] = fmt.Sprintf("north-%d", i)
		trust[names[i]] = catalog.Trust{Roots: string(northCA.PEM())}
	}
	westID := source(t, "west", westCA, "north", northCA)
	westID.SetPeers("", trust)
	w := accepts(t, westID, names...)
	before := used()
	for _, name := range names {
		dials(t, name, source(t, name, northCA, "west", westCA), w.listener.Addr().String())
	}
	eventually(t, "a tunnel of each", func() bool {
		for _, name := range names {
			if w.open(name) != 1 {
				return false
			}
		}
		return true
	})
	for _, name := range names {
		if err := w.echo(name); err != nil {
			t.Fatal(err)
		}
	}
	each := (used() - before) / tunnels
	t.Logf("a tunnel takes %d KiB, at both ends together", each>>10)
	if each > 256<<10 {
		t.Errorf("a tunnel takes %d KiB", each>>10)
	}
}

// used is what the heap and the stacks take.
func used() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func TestARefusalSaysWhatIsMissing(t *testing.T) {
	westID, northID := two(t)
	w := accepts(t, westID)
	d := dials(t, "north", northID, w.listener.Addr().String())
	eventually(t, "why", func() bool {
		for _, k := range d.all() {
			k.mu.Lock()
			err := k.err
			k.mu.Unlock()
			if err != nil && strings.Contains(err.Error(), `does not have "tunnel: accept"`) {
				return true
			}
		}
		return false
	})
}
