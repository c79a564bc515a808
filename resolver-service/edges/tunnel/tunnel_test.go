package tunnel

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 2 * time.Minute

// source is the identity of a cluster's service, which believes the other cluster's authority.
func source(t testing.TB, cluster string, ca *identitytest.CA, other string, by *identitytest.CA, edits ...func(*x509.Certificate)) *identity.Source {
	t.Helper()
	app := identity.ServiceApp("", cluster)
	s, err := identity.New(ca.Config(app, edits...), app, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Load(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.SetPeers("", map[string]catalog.Trust{other: {Roots: string(by.PEM())}})
	return s
}

// west accepts tunnels at a port of its own, as its gateway would hand them over.
type west struct {
	*Accepter
	t        testing.TB
	listener net.Listener
	clusters live.Value[[]*catalog.Cluster]
	taken    atomic.Int32
	stop     func()

	mu    sync.Mutex
	conns []net.Conn
}

func accepts(t testing.TB, id *identity.Source, clusters ...string) *west {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &west{t: t, listener: l, Accepter: NewAccepter(Config{Cluster: "west", Domain: catalog.DefaultDomain, Identity: id, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})}
	var objects []*catalog.Cluster
	for _, name := range clusters {
		objects = append(objects, &catalog.Cluster{Name: name, Tunnel: catalog.TunnelAccept})
	}
	w.clusters.Store(objects)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.Accepter.follow(objects)
	running.Go(func() { w.Accepter.Run(ctx, &w.clusters) })
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			w.taken.Add(1)
			w.mu.Lock()
			w.conns = append(w.conns, conn)
			w.mu.Unlock()
			w.Take(conn)
		}
	})
	w.stop = sync.OnceFunc(func() {
		l.Close()
		cancel()
		running.Wait()
	})
	t.Cleanup(w.stop)
	return w
}

// cut breaks every connection off.
func (w *west) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		conn.Close()
	}
	w.conns = nil
}

// dials is a cluster that dials west, and echoes what comes by its tunnels.
func dials(t testing.TB, cluster string, id *identity.Source, gateways ...string) *Dialer {
	t.Helper()
	return dialsWith(t, Config{Cluster: cluster, Identity: id}, gateways...)
}

// dialsBy is dials through something.
func dialsBy(t testing.TB, id *identity.Source, dial func(context.Context, string) (net.Conn, error)) *Dialer {
	t.Helper()
	return dialsWith(t, Config{Cluster: "north", Identity: id, Dial: dial}, "balancer:15443")
}

func dialsWith(t testing.TB, cfg Config, gateways ...string) *Dialer {
	t.Helper()
	cfg.Domain, cfg.Log = catalog.DefaultDomain, slog.New(slog.NewTextHandler(t.Output(), nil))
	d := NewDialer(cfg)
	var clusters live.Value[[]*catalog.Cluster]
	clusters.Store([]*catalog.Cluster{{Name: "west", Tunnel: catalog.TunnelDial, Gateways: gateways}})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx, &clusters) })
	running.Go(func() {
		var echoing sync.WaitGroup
		defer echoing.Wait()
		for {
			conn, err := d.Accept()
			if err != nil {
				return
			}
			echoing.Go(func() {
				defer conn.Close()
				io.Copy(conn, conn)
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		d.Close()
		d.End()
		running.Wait()
	})
	return d
}

func (w *west) echo(cluster string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := w.Open(ctx, cluster)
	if err != nil {
		return err
	}
	defer s.Close()
	return echo(s)
}

func echo(s net.Conn) error {
	s.SetDeadline(time.Now().Add(patience))
	if _, err := s.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(s, make([]byte, 5))
	return err
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func (w *west) open(cluster string) int {
	w.Accepter.mu.Lock()
	defer w.Accepter.mu.Unlock()
	return len(w.accepted[cluster].tunnels)
}

func two(t testing.TB, edits ...func(*x509.Certificate)) (west, north *identity.Source) {
	westCA, northCA := identitytest.NewCA(t), identitytest.NewCA(t)
	return source(t, "west", westCA, "north", northCA, edits...), source(t, "north", northCA, "west", westCA, edits...)
}

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
		w.cut()
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
	replicas[1].cut()
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

// BenchmarkEcho is messages of 1 KiB there and back, and how many bytes that takes on the way.
func BenchmarkEcho(b *testing.B) {
	westID, northID := two(b)
	w := accepts(b, westID, "north")
	var bytes atomic.Int64
	dialsBy(b, northID, func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", w.listener.Addr().String())
		return &counted{conn, &bytes}, err
	})
	eventually(b, "a tunnel", func() bool { return w.open("north") == 1 })
	s, err := w.Open(b.Context(), "north")
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	message := make([]byte, 1024)
	began := bytes.Load()
	for b.Loop() {
		s.Write(message)
		io.ReadFull(s, message)
	}
	b.ReportMetric(float64(bytes.Load()-began)/float64(b.N), "wire-bytes/op")
}

// counted counts the bytes of a connection, in both directions.
type counted struct {
	net.Conn
	bytes *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.bytes.Add(int64(n))
	return n, err
}
