package resolverservice

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	dnsedge "github.com/isthmus-mesh/isthmus/resolver-service/edges/dns"
	"github.com/isthmus-mesh/isthmus/tracing/otlp"
)

// calling makes a connection after the other to orders through a gateway, some at a time, until
// the test calls done, which returns how many there were and why the first failed that did.
func calling(t *testing.T, gateway string) (done func() (int64, error)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var calls atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ; ctx.Err() == nil; calls.Add(1) {
				if err := callOnce(gateway); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	return func() (int64, error) {
		stop()
		all.Wait()
		if err := failed.Load(); err != nil {
			return calls.Load(), *err
		}
		return calls.Load(), nil
	}
}

func callOnce(gateway string) error {
	conn, err := tls.Dial("tcp", gateway, &tls.Config{ServerName: "orders.shop.east.isthmus.internal", InsecureSkipVerify: true})
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return err
}

// takenOver is a service with a successor's configuration, which lacks nothing that can be
// handed over.
func takenOver(t *testing.T, ca *identitytest.CA) (first, next *Config) {
	t.Helper()
	first = configOf(t, "east", ca)
	first.Gateway.DrainTimeout = time.Hour
	first.Listen.Resolver = "unix://" + filepath.Join(t.TempDir(), "s")
	first.Listen.DNS = []dnsedge.Endpoint{{Address: "127.0.0.1:0"}}
	copied := *first
	return first, &copied
}

// stopped tells the service to end, and returns once it takes successors.
func (r *running) stopping() (ended <-chan error) {
	done := make(chan error, 1)
	go func() { done <- r.stop() }()
	r.within("shutting down", func() bool {
		code, body := r.get("/readyz")
		return code == http.StatusServiceUnavailable && strings.Contains(body, "shutting down")
	})
	return done
}

func TestASuccessorTakesOverWithoutALostConnection(t *testing.T) {
	ca := identitytest.NewCA(t)
	cfg, next := takenOver(t, ca)
	east := start(t, cfg, ca)
	east.apply(export("west"))
	east.sidecar(orders, tlsEcho(t, ca))
	gateway := east.Addr("gateway").String()
	west := start(t, configOf(t, "west", ca), ca)
	west.apply(clusterAt("east", east.Addr("gateway"), "20s") + "---\n" + selectsOrders)
	east.apply(clusterAt("west", west.Addr("gateway"), "20s"))
	west.within("heard", func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok ") })

	// A connection that runs, new ones all the while, and DNS.
	held, err := tls.Dial("tcp", gateway, &tls.Config{ServerName: "orders.shop.east.isthmus.internal", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	done := calling(t, gateway)
	asks := map[string]*dns.Client{"udp": {Timeout: patience}, "tcp": {Net: "tcp", Timeout: patience}}
	server := east.Addr("dns").String()
	ask := func() {
		question := new(dns.Msg).SetQuestion("dns-version.isthmus.internal.", dns.TypeTXT)
		for protocol, client := range asks {
			if _, _, err := client.Exchange(question, server); err != nil {
				t.Errorf("DNS by %s: %v", protocol, err)
			}
		}
	}
	time.Sleep(100 * time.Millisecond)
	ended := east.stopping()
	ask()
	successor := launch(t, next, ca)
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		ask()
		if got := west.resolve(checkout, orders); !strings.HasPrefix(got, "ok ") {
			t.Fatalf("a caller in another cluster: %s", got)
		}
	}
	if got := successor.Addr("gateway").String(); got != gateway {
		t.Errorf("the successor listens at %s, not %s", got, gateway)
	}
	if got := successor.resolve(checkout, orders); !strings.HasPrefix(got, "ok ") {
		t.Errorf("what was registered has lapsed: %s", got)
	}
	select {
	case err := <-ended:
		t.Errorf("ended although a connection runs: %v", err)
	default:
	}
	if _, err := held.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(held, make([]byte, 1)); err != nil {
		t.Errorf("a connection that runs was cut: %v", err)
	}
	held.Close()
	calls, err := done()
	if err != nil || calls < 10 {
		t.Errorf("of %d calls one failed: %v", calls, err)
	}
	t.Logf("%d calls", calls)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := callOnce(gateway); err != nil {
		t.Errorf("once the predecessor has ended: %v", err)
	}
	for _, p := range west.links.Status() {
		if p.Lapses > 0 {
			t.Errorf("the lease has run out: %v", p)
		}
	}
}

// A successor that fails after the first one has let go of its store costs nothing: that one
// serves on, until another comes.
func TestASuccessorThatFailsIsReplacedByAnother(t *testing.T) {
	ca := identitytest.NewCA(t)
	cfg, next := takenOver(t, ca)
	east := start(t, cfg, ca)
	east.apply(export("west"))
	east.sidecar(orders, tlsEcho(t, ca))
	held, err := tls.Dial("tcp", east.Addr("gateway").String(), &tls.Config{ServerName: "orders.shop.east.isthmus.internal", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	done := calling(t, east.Addr("gateway").String())
	ended := east.stopping()
	wrong := *next
	wrong.Tracing.OTLP = &otlp.Exporter{Endpoint: "http://no such host"}
	if err := Run(t.Context(), &wrong, slog.New(slog.NewTextHandler(t.Output(), nil))); err == nil {
		t.Fatal("a service with a wrong configuration runs")
	}
	time.Sleep(100 * time.Millisecond)
	successor := start(t, next, ca)
	held.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if calls, err := done(); err != nil {
		t.Errorf("of %d calls one failed: %v", calls, err)
	}
	if got := successor.resolve(checkout, orders); !strings.HasPrefix(got, "ok ") {
		t.Errorf("what was registered has lapsed: %s", got)
	}
}

func TestASecondServiceIsRefusedWhileTheFirstDoesNotStop(t *testing.T) {
	first := start(t, configOf(t, "east", nil), nil)
	second := configOf(t, "east", nil)
	second.DataDir, second.Listen.Gateway = first.cfg.DataDir, first.Addr("gateway").String()
	err := Run(t.Context(), second, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if want := fmt.Sprintf("listen.gateway: %s: address already in use", second.Listen.Gateway); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error %v; want %s …", err, want)
	}
	if got := first.resolve(checkout, orders); !strings.HasPrefix(got, "not found") {
		t.Errorf("the first answers %s", got)
	}
}

// TestASquatterChangesNothingOfAHandover: other users of the machine can neither reach the socket
// nor be there first, and who floods it with nonsense causes no flood of the log.
func TestASquatterChangesNothingOfAHandover(t *testing.T) {
	ca := identitytest.NewCA(t)
	cfg, next := takenOver(t, ca)
	cfg.DataDir += strings.Repeat("/a-long-way", 20) // longer than a socket's address
	next.DataDir = cfg.DataDir
	sum := sha256.Sum256([]byte(cfg.DataDir + "\x00" + cfg.dataDir().Own("service")))
	squatted, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: fmt.Sprintf("@isthmus-%x", sum[:16]), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer squatted.Close() // where earlier versions met
	var written bytes.Buffer
	east := launchWith(t, cfg, ca, slog.New(slog.NewTextHandler(io.MultiWriter(&written, t.Output()), nil)))
	east.within("ready", func() bool { code, _ := east.get("/readyz"); return code == http.StatusOK })
	handover := filepath.Join(cfg.DataDir, cfg.dataDir().Handover())
	if err := os.WriteFile(handover, []byte("left behind"), 0o600); err != nil {
		t.Fatal(err)
	}
	east.apply(export("west"))
	east.sidecar(orders, tlsEcho(t, ca))
	held, err := tls.Dial("tcp", east.Addr("gateway").String(), &tls.Config{ServerName: "orders.shop.east.isthmus.internal", InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	done := calling(t, east.Addr("gateway").String())
	ended := east.stopping()
	dir, err := os.Open(cfg.DataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	connect := func() error {
		conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(handover)), Net: "unixpacket"})
		if err == nil {
			_, err = conn.Write([]byte("nonsense"))
			conn.Close()
		}
		return err
	}
	east.within("the socket", func() bool { return connect() == nil })
	if info, err := os.Lstat(handover); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v (%v); want that other users may not connect", info.Mode(), err)
	}
	for range 20 {
		if err := connect(); err != nil {
			t.Error(err)
		}
	}
	successor := start(t, next, ca)
	held.Close()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if calls, err := done(); err != nil {
		t.Errorf("of %d calls one failed: %v", calls, err)
	}
	if got := successor.resolve(checkout, orders); !strings.HasPrefix(got, "ok ") {
		t.Errorf("what was registered has lapsed: %s", got)
	}
	if lines := strings.Count(written.String(), "did not take over"); lines < 1 || lines > 5 {
		t.Errorf("%d lines about 21 attempts within moments, want one in 10 s:\n%s", lines, written.String())
	}
	if _, err := os.Lstat(handover); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
