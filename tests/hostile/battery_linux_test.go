package hostile

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// Bounds of what one row of the battery may cost the service, on all listeners together: the
// memory that it takes at most beyond what it had, and what it still has afterwards.
const (
	mostGrown = 256 * mebi
	mostKept  = 160 * mebi // Go gives freed memory back to the kernel over minutes
)

// hit is what an attack of a row does to one listener. It returns once the attack is at its
// height. The check that it returns is made after that, while the attack goes on; nil for none.
type hit func(a *attack, s *stage) (check func())

// battery is what every listener is put under, all listeners at once. A row leaves out the
// listeners that it can't be done to: UDP has no connections, and only those for sidecars and
// peers want certificates.
var battery = []struct {
	attack string
	on     func(*door) hit
}{
	{"silent", stream(silent)},
	{"slow", stream(slow)},
	{"half-open", stream(halfOpen)},
	{"never reading", stream(neverReading)},
	{"huge", huge},
	{"many streams", manyStreams},
	{"reset storm", resetStorm},
	{"wrong certificate", certain(wrongCertificate)},
	{"no certificate", certain(noCertificate)},
	{"expired while open", certain(expired)},
}

// TestBattery puts every listener under the same attacks. While each lasts, the calls of
// everybody else go on without a failure, and the service's memory and descriptors keep to
// their bounds. After it they return.
func TestBattery(t *testing.T) {
	s := newStage(t, nil)
	others := s.honestCalls(t)
	first := usageOf(t, s.Process)
	for _, row := range battery {
		t.Run(row.attack, func(t *testing.T) {
			before := usageOf(t, s.Process)
			forgetPeak(t, s.Process)
			t.Run("on", func(t *testing.T) {
				for _, d := range s.doors(t) {
					hit := row.on(&d)
					if hit == nil {
						continue
					}
					t.Run(d.name, func(t *testing.T) {
						t.Parallel()
						a := d.attack(t)
						check := hit(a, s)
						others.goOn(t, 3)
						t.Logf("%d connections, %d refused", len(a.conns), a.refused.Load())
						if check != nil {
							check()
						}
					})
				}
			})
			others.goOn(t, 1)
			after := usageOf(t, s.Process)
			t.Logf("before %s; after %s", before, after)
			if grown := after.peak - before.resident; grown > mostGrown {
				t.Errorf("it took %d MiB more, want at most %d", grown/mebi, mostGrown/mebi)
			}
			returns(t, s.Process, first)
		})
	}
	if last := usageOf(t, s.Process); last.resident > first.resident+mostKept {
		t.Errorf("after all attacks it has %s, and before %s", last, first)
	}
}

// stream is a hit on all listeners but those for packets.
func stream(h hit) func(*door) hit {
	return func(d *door) hit {
		if d.packets {
			return nil
		}
		return h
	}
}

// certain is a hit on the listeners that want a certificate.
func certain(h hit) func(*door) hit {
	return func(d *door) hit {
		if !d.h2 {
			return nil
		}
		return h
	}
}

// silent connections never say a word.
func silent(a *attack, _ *stage) func() {
	a.open(300, func(net.Conn) {})
	return a.allEnd
}

// halfOpen connections send half of what comes first, and no more.
func halfOpen(a *attack, _ *stage) func() {
	a.open(300, func(c net.Conn) { c.Write(a.opening[:len(a.opening)/2]) })
	return a.allEnd
}

// slow connections send a byte now and then.
func slow(a *attack, _ *stage) func() {
	a.open(100, func(c net.Conn) {
		a.working.Go(func() {
			for _, b := range a.opening {
				c.SetWriteDeadline(time.Now().Add(meshtest.Attempt))
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				select {
				case <-a.ctx.Done():
					return
				case <-time.After(500 * time.Millisecond):
				}
			}
		})
	})
	return a.allEnd
}

// neverReading connections ask on and on, and take no answer.
func neverReading(a *attack, s *stage) func() {
	if a.h2 {
		a.raw(s, 20, 0, func(c *rawHTTP2) {
			c.call(a.method())
			a.working.Go(func() {
				for n := 0; n < 200_000 && a.ctx.Err() == nil; n++ {
					c.SetWriteDeadline(time.Now().Add(time.Second))
					if c.WritePing(false, [8]byte{1}) != nil {
						return
					}
				}
			})
		})
		return nil
	}
	a.openSecure(50, func(c net.Conn) {
		small(c)
		a.pour(c, bytes.Repeat(a.request, max(1, 4096/len(a.request))), 4*mebi)
	})
	return nil
}

// huge connections send a first message that has no end.
func huge(d *door) hit {
	return func(a *attack, s *stage) func() {
		if d.packets {
			a.packets(500, make([]byte, 65_000))
			return nil
		}
		a.open(20, func(c net.Conn) { a.pour(c, a.endless, 16*mebi); a.drain(c) })
		if a.body != nil {
			a.open(20, func(c net.Conn) {
				c.Write(a.body)
				a.pour(c, make([]byte, 64<<10), 16*mebi)
				a.drain(c)
			})
		}
		if a.h2 && !a.peer {
			a.hugeHello(s)
		}
		return nil
	}
}

// hugeHello is a first message of a stream that is longer than any view.
func (a *attack) hugeHello(s *stage) {
	a.t.Helper()
	as, _ := a.mallory(s)
	conn := as.client(a.t, a.address, "")
	long := string(make([]byte, 17*mebi))
	var err error
	if a.xds {
		_, err = following(meshtest.Within(a.t, meshtest.Patience), conn, "mallory", long)
	} else {
		m := helloOf(app("mallory"), 0)
		m.GetHello().App.Id = long
		var stream v1alpha1.Resolver_WatchClient
		if stream, err = v1alpha1.NewResolverClient(conn).Watch(meshtest.Within(a.t, meshtest.Patience)); err == nil {
			_ = stream.Send(m) // Recv has the reason
			_, err = stream.Recv()
		}
	}
	if status.Code(err) != codes.ResourceExhausted {
		a.t.Errorf("a hello of 17 MiB: %v, want ResourceExhausted", err)
	}
}

// manyStreams are as many requests, streams or connections at once as can be had.
func manyStreams(d *door) hit {
	return func(a *attack, s *stage) func() {
		switch {
		case d.packets:
			a.packets(5000, a.request)
		case d.h2:
			a.raw(s, 4, 65_535, func(c *rawHTTP2) {
				a.drain(c.Conn)
				a.working.Go(func() {
					for range 2000 {
						if _, err := c.call(a.method()); err != nil {
							return
						}
					}
				})
			})
		case d.passes:
			a.openSecure(500, func(net.Conn) {})
		default:
			a.openSecure(20, func(c net.Conn) { a.drain(c); a.pour(c, a.request, 1000*len(a.request)) })
		}
		return nil
	}
}

// resetStorm is streams that are reset as soon as they are there (CVE-2023-44487), or
// connections.
func resetStorm(d *door) hit {
	return func(a *attack, s *stage) func() {
		switch {
		case d.packets:
			a.packets(5000, []byte{1, 2, 3})
		case d.h2:
			a.raw(s, 4, 65_535, func(c *rawHTTP2) {
				a.drain(c.Conn)
				a.working.Go(func() {
					for range 5000 {
						stream, err := c.call(a.method())
						if err != nil || c.WriteRSTStream(stream, 8) != nil {
							return
						}
					}
				})
			})
		default:
			a.open(1000, func(c net.Conn) {
				c.Write(a.opening)
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			})
		}
		return nil
	}
}

// wrongCertificate: the root is another one.
func wrongCertificate(a *attack, s *stage) func() {
	other, err := sandbox.NewAuthority()
	if err != nil {
		a.t.Fatal(err)
	}
	for range 20 {
		a.refusal(certified(a.t, other, westDomain, app("checkout")))
		a.refusal(certified(a.t, other, "north.example", s.peerApp("north")))
	}
	return nil
}

// noCertificate: the client shows none.
func noCertificate(a *attack, _ *stage) func() {
	for range 40 {
		a.refusal(caller{})
	}
	return nil
}

// refusal wants a caller to be refused.
func (a *attack) refusal(as caller) {
	a.t.Helper()
	conn, err := as.at(a.from(0).from.String()).grpc(a.address, a.serverName())
	if err != nil {
		a.t.Fatal(err)
	}
	defer conn.Close()
	if err := a.call(meshtest.Within(a.t, meshtest.Attempt), conn); status.Code(err) != codes.Unavailable {
		a.t.Fatalf("got %v, want to be refused in the handshake", err)
	}
}

// expired: the certificate ends while a stream is open. The stream must end with it; a peer's
// ends before, so that it comes back with a newer one.
func expired(a *attack, s *stage) func() {
	end := time.Now().Add(10 * time.Second)
	as, who := certifiedUntil(a.t, end, s.authority, westDomain, app("mallory")), "mallory"
	if a.peer {
		as = certifiedUntil(a.t, end, s.authority, "north.example", s.peerApp("north"))
	}
	conn := as.client(a.t, a.address, a.serverName())
	ctx := meshtest.Within(a.t, meshtest.Patience)
	ended := make(chan error, 1)
	stream, err := a.begin(ctx, conn, who)
	if err != nil {
		a.t.Fatalf("before it expired: %v", err)
	}
	a.working.Go(func() {
		var err error
		for err == nil {
			err = stream()
		}
		ended <- err
	})
	return func() {
		select {
		case err := <-ended:
			a.t.Logf("ended %s after the certificate expired: %v", time.Since(end).Round(time.Millisecond), err)
		case <-time.After(time.Until(end) + meshtest.Attempt):
			a.t.Errorf("the stream goes on %s after the certificate expired", meshtest.Attempt)
		}
	}
}

// begin opens a stream, and returns what waits for its next word.
func (a *attack) begin(ctx context.Context, conn grpc.ClientConnInterface, id string) (next func() error, err error) {
	if a.peer {
		stream, err := v1alpha1.NewPeeringClient(conn).Renew(ctx)
		if err == nil {
			_ = stream.Send(&v1alpha1.RenewRequest{Cluster: "north", Ping: 1}) // Recv has the reason
			_, err = stream.Recv()
		}
		return func() error { _, err := stream.Recv(); return err }, err
	}
	if a.xds {
		return following(ctx, conn, id, "orders.shop")
	}
	stream, err := watch(ctx, conn, app(id), "127.0.0.1:3")
	if err == nil {
		_, err = stream.Recv()
	}
	return func() error { _, err := stream.Recv(); return err }, err
}

// following follows names by xDS, and returns what waits for the response after the first.
func following(ctx context.Context, conn grpc.ClientConnInterface, id string, names ...string) (next func() error, err error) {
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil {
		_ = stream.Send(&discoveryv3.DeltaDiscoveryRequest{ // Recv has the reason
			Node: &corev3.Node{Id: app(id).String()}, ResourceNamesSubscribe: names,
			TypeUrl: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
		})
		_, err = stream.Recv()
	}
	return func() error { _, err := stream.Recv(); return err }, err
}

// call is begin, and no more.
func (a *attack) call(ctx context.Context, conn grpc.ClientConnInterface) error {
	_, err := a.begin(ctx, conn, "checkout")
	return err
}
