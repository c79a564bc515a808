package tunnel

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
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

// cut breaks every connection off, and waits until none of their tunnels counts any more: a stream that is
// opened before that fails, whichever way it is cut.
func (w *west) cut(t testing.TB) {
	t.Helper()
	had := w.tunnels()
	w.mu.Lock()
	for _, conn := range w.conns {
		conn.Close()
	}
	w.conns = nil
	w.mu.Unlock()
	eventually(t, "no tunnel that was cut", func() bool {
		return !slices.ContainsFunc(w.tunnels(), func(i *inward) bool { return slices.Contains(had, i) })
	})
}

// tunnels are those of all clusters.
func (w *west) tunnels() (all []*inward) {
	w.Accepter.mu.Lock()
	defer w.Accepter.mu.Unlock()
	for _, of := range w.accepted {
		all = append(all, of.tunnels...)
	}
	return all
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
