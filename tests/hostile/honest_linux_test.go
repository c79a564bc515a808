package hostile

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mdns "github.com/miekg/dns"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
)

// honest is everybody else: a caller for each listener, which asks again and again over new
// connections. None may fail, whatever an attacker does meanwhile.
type honest struct {
	edges []*edge
}

// edge is one honest caller.
type edge struct {
	name   string
	call   func(context.Context) error
	pause  time.Duration // between two calls; 0: defaultPause
	rounds atomic.Int64  // that went well

	mu      sync.Mutex
	failed  error // the first failure
	slowest time.Duration
}

// defaultPause lies between two calls of an honest caller. A peer may make 8 streams a second.
const (
	defaultPause = 50 * time.Millisecond
	peerPause    = 250 * time.Millisecond
)

// honestCalls begins the calls. They end with the test, which they fail if any call failed.
func (s *stage) honestCalls(t *testing.T) *honest {
	t.Helper()
	h := &honest{edges: s.edges(t)}
	ctx, end := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	for _, e := range h.edges {
		calling.Go(func() { e.run(ctx) })
	}
	t.Cleanup(func() {
		end()
		calling.Wait()
		for _, e := range h.edges {
			t.Logf("%-22s %5d calls, the slowest took %s", e.name, e.rounds.Load(), e.slowest.Round(time.Millisecond))
		}
	})
	h.goOn(t, 2)
	return h
}

func (e *edge) run(ctx context.Context) {
	for ctx.Err() == nil {
		began := time.Now()
		attempt, cancel := context.WithTimeout(ctx, meshtest.Attempt)
		err := e.call(attempt)
		cancel()
		e.mu.Lock()
		switch {
		case ctx.Err() != nil:
		case err == nil:
			e.rounds.Add(1)
			e.slowest = max(e.slowest, time.Since(began))
		case e.failed == nil:
			e.failed = fmt.Errorf("after %d calls and %s: %w", e.rounds.Load(), time.Since(began).Round(time.Millisecond), err)
		}
		e.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(cmp.Or(e.pause, defaultPause)):
		}
	}
}

// failure is the first failure since it was last asked for.
func (e *edge) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.failed
	e.failed = nil
	return err
}

// goOn waits until each honest caller has had so many more answers, and fails the test for
// each that was not answered.
func (h *honest) goOn(t *testing.T, rounds int64) {
	t.Helper()
	until := make([]int64, len(h.edges))
	for i, e := range h.edges {
		until[i] = e.rounds.Load() + rounds
	}
	for i, e := range h.edges {
		for e.rounds.Load() < until[i] {
			if err := e.failure(); err != nil {
				t.Errorf("a call of somebody else failed: %s %v", e.name, err)
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := e.failure(); err != nil {
			t.Errorf("a call of somebody else failed: %s %v", e.name, err)
		}
	}
}

// edges are the honest callers of a stage.
func (s *stage) edges(t *testing.T) []*edge {
	t.Helper()
	cli := certified(t, s.authority, westDomain, identity.CLIApp(""))
	east := s.peer(t, "east")
	return []*edge{
		{name: "admin", call: func(ctx context.Context) error { return get(ctx, "http://"+s.Admin+"/livez", nil) }},
		{name: "debug", call: func(ctx context.Context) error { return get(ctx, "http://"+s.debug+"/debug/views", nil) }},
		{name: "consul", call: func(ctx context.Context) error {
			return get(ctx, "http://"+s.consul+"/v1/health/service/orders", http.Header{"X-Consul-Token": {consulToken}})
		}},
		{name: "dns udp", call: func(ctx context.Context) error { return ask(ctx, "udp", s.dns) }},
		{name: "dns tcp", call: func(ctx context.Context) error { return ask(ctx, "tcp", s.dns) }},
		{name: "dns tls", call: func(ctx context.Context) error { return ask(ctx, "tcp-tls", s.dnsTLS) }},
		{name: "gateway", call: func(ctx context.Context) error { return s.callOrders(ctx, caller{}, s.Gateway) }},
		{name: "gateway apps", call: func(ctx context.Context) error { return s.callOrders(ctx, caller{}, s.apps) }},
		{name: "gateway _resolver", pause: peerPause, call: func(ctx context.Context) error { return s.renew(ctx, east, "east") }},
		{name: "resolver", call: func(ctx context.Context) error { return s.resolve(ctx, cli) }},
		{name: "resolver, stream", call: s.updates(t)},
	}
}

// get asks over a connection of its own.
func get(ctx context.Context, url string, header http.Header) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if header != nil {
		req.Header = header
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, res.Status, body)
	}
	return err
}

// ask asks DNS for an app.
func ask(ctx context.Context, network, at string) error {
	c := mdns.Client{Net: network, Timeout: meshtest.Attempt, TLSConfig: &tls.Config{InsecureSkipVerify: true}}
	answer, _, err := c.ExchangeContext(ctx, new(mdns.Msg).SetQuestion("orders.shop.isthmus.internal.", mdns.TypeA), at)
	if err == nil && len(answer.Answer) != 1 {
		err = fmt.Errorf("answered %s", answer)
	}
	return err
}

// callOrders calls the app through the gateway, as a sidecar of another cluster does.
func (s *stage) callOrders(ctx context.Context, as caller, through string) error {
	conn, err := s.openOrders(ctx, as, through)
	if err != nil {
		return err
	}
	return conn.Close()
}

// openOrders is [stage.callOrders] and leaves the connection open.
func (s *stage) openOrders(ctx context.Context, as caller, through string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, meshtest.Attempt)
	defer cancel()
	conn, err := as.dialTLS(ctx, through, ordersName)
	if err != nil {
		return nil, err
	}
	conn.SetDeadline(time.Now().Add(meshtest.Attempt))
	const text = "how many?"
	got := make([]byte, len(text))
	if _, err = conn.Write([]byte(text)); err == nil {
		_, err = io.ReadFull(conn, got)
	}
	if err == nil && string(got) != text {
		err = fmt.Errorf("the app answered %q", got)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return conn, nil
}

// echoOn is the app's side of a connection.
func echoOn(ctx context.Context, raw net.Conn, cfg *tls.Config) {
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	defer raw.Close()
	conn := tls.Server(raw, cfg)
	io.Copy(conn, conn)
}

// renew is what a peer does: it asks for the lease through the gateway.
func (s *stage) renew(ctx context.Context, as caller, cluster string) error {
	conn, err := as.grpc(s.Gateway, resolverName)
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := v1alpha1.NewPeeringClient(conn).Renew(ctx)
	if err != nil {
		return err
	}
	if err := stream.Send(&v1alpha1.RenewRequest{Cluster: cluster, Ping: 7}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for {
		switch word, err := stream.Recv(); {
		case err != nil:
			return err
		case word.Echo == 7:
			return nil
		}
	}
}

// resolve is a lookup by the operator.
func (s *stage) resolve(ctx context.Context, as caller) error {
	conn, err := as.grpc(s.Resolver, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	d, err := v1alpha1.NewResolverClient(conn).Resolve(ctx, &v1alpha1.ResolveRequest{Caller: wire.App(app("checkout")), App: wire.App(app("orders"))})
	if err == nil && d.Outcome != "ok" {
		err = fmt.Errorf("resolved %s", d)
	}
	return err
}

// updates is a sidecar that watches over one stream, and one that comes and goes: each time
// the first must be told.
func (s *stage) updates(t *testing.T) func(context.Context) error {
	t.Helper()
	stream, err := watch(t.Context(), s.own(t, "watcher").client(t, s.Resolver, ""), app("watcher"), "")
	if err != nil {
		t.Fatal(err)
	}
	words := make(chan int64, 64) // how many instances of the other are ready
	go func() {
		defer close(words)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			for _, e := range m.Put {
				if e.App.Id == "ticker" && len(e.Routes) > 0 {
					words <- int64(e.Routes[0].Ready)
				}
			}
			for _, gone := range m.Removed {
				if gone.Id == "ticker" {
					words <- 0
				}
			}
		}
	}()
	ticker, host := s.own(t, "ticker"), "127.0.0.1:2"
	until := func(ctx context.Context, want int64) error {
		for {
			select {
			case ready, open := <-words:
				if !open {
					return errors.New("the stream has ended")
				}
				if ready == want {
					return nil
				}
			case <-ctx.Done():
				return fmt.Errorf("no update: want %d instances", want)
			}
		}
	}
	return func(ctx context.Context) error {
		conn, err := ticker.grpc(s.Resolver, "")
		if err != nil {
			return err
		}
		defer conn.Close()
		come, err := watch(ctx, conn, app("ticker"), host)
		if err == nil {
			_, err = come.Recv()
		}
		if err == nil {
			err = until(ctx, 1)
		}
		if err != nil {
			return err
		}
		conn.Close()
		return until(ctx, 0)
	}
}
