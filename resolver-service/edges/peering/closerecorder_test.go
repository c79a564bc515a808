package peering

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/peering/peeringtest"
)

// dials counts the connections that a cluster makes, and can delay them.
type dials struct {
	count atomic.Int64
	hold  atomic.Bool
}

func (d *dials) dial(ctx context.Context, address string) (net.Conn, error) {
	d.count.Add(1)
	if d.hold.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", address)
}

// strangers are east and west, each with an authority of its own. roots adds the other's root to
// their Cluster objects.
type strangers struct {
	east, west     *place
	eastCA, westCA *identitytest.CA
	toEast, toWest *catalog.Cluster
	dials          *dials // of west
}

func newStrangers(t *testing.T) *strangers {
	s := &strangers{eastCA: identitytest.NewCA(t), westCA: identitytest.NewCA(t), dials: &dials{}}
	s.east = newPlace(t, "east", s.eastCA.Config(identity.ServiceApp("", "east")), exported("orders"), &catalog.Cluster{Name: "west"})
	s.east.apply(runs("orders", "10.0.0.1:50002"))
	s.east.serve("")
	s.west = newPlace(t, "west", s.westCA.Config(identity.ServiceApp("", "west")), selection("checkout", "orders"), reaches("east", 0, s.east.server.address))
	s.west.serve("")
	s.west.cfg.Dial = s.dials.dial
	s.toEast, s.toWest = reaches("east", enough, s.east.server.address), reaches("west", enough, s.west.server.address)
	return s
}

func trusting(c *catalog.Cluster, ca *identitytest.CA) *catalog.Cluster {
	changed := *c
	changed.Trust.Roots = string(ca.PEM())
	return &changed
}

func TestAnotherClusterThatLacksOurRootIsSaidToLackIt(t *testing.T) {
	s := newStrangers(t)
	_, ofEast := s.east.link(s.toWest)
	toEast := trusting(s.toEast, s.eastCA)
	links, ofWest := s.west.link(toEast)
	const want = "authentication handshake failed: remote error: tls: bad certificate; " + distrustRemedy
	within(t, "many attempts, all with the same error", func() bool {
		switch got := only(links).Error; got {
		case want:
			if text := links.Describe("east"); text != "not heard yet; "+want && text != "not heard yet" {
				t.Fatalf("described as %q", text)
			}
			changed := *toEast
			changed.RampUp += time.Second // the next attempt is at once
			toEast = &changed
			ofWest.Store([]*catalog.Cluster{toEast})
		case "":
		default:
			t.Fatalf("error %q; want %q", got, want)
		}
		return s.dials.count.Load() >= 50
	})
	ofEast.Store([]*catalog.Cluster{trusting(s.toWest, s.westCA)})
	within(t, "east heard once it has west's root", func() bool { return s.west.outcome("checkout", "orders") == "ok east" })
	within(t, "no error", func() bool { return only(links).Error == "" })
}

func TestAnErrorGoesWithTheClusterObjectThatItSpeaksOf(t *testing.T) {
	s := newStrangers(t)
	s.east.link(trusting(s.toWest, s.westCA))
	links, ofWest := s.west.link(s.toEast)
	const lacks = "add east's root to Cluster east, spec.trust.roots"
	within(t, "what the Cluster object lacks", func() bool { return strings.Contains(only(links).Error, lacks) })
	if text := links.Describe("east"); !strings.Contains(text, lacks) {
		t.Errorf("described as %q", text)
	}
	s.dials.hold.Store(true)
	ofWest.Store([]*catalog.Cluster{trusting(s.toEast, s.eastCA)})
	within(t, "the new object", func() bool {
		links.mu.Lock()
		defer links.mu.Unlock()
		object, _ := links.links["east"].object.Load()
		return object.Trust.Roots != ""
	})
	held := s.dials.count.Load()
	within(t, "an attempt by the new one", func() bool {
		if text := only(links).Error + links.Describe("east"); strings.Contains(text, lacks) {
			t.Fatalf("the Cluster object has the root, and the status says %q", text)
		}
		return s.dials.count.Load() > held
	})
	s.dials.hold.Store(false)
	within(t, "east heard", func() bool { return s.west.outcome("checkout", "orders") == "ok east" })
}

func TestAnErrorByAFormerClusterObjectIsNoNews(t *testing.T) {
	var s linkStatus
	g := newGateways([]string{"gw:15443"})
	former, now := reaches("east", 0), reaches("east", 0)
	s.setObject(former)
	s.setGateways(g)
	s.setObject(now)
	refused := errors.New("refused")
	g.connected(g.all[0])
	g.closed(g.all[0], false, former, refused)
	if s.failed(former, refused) || s.err != nil || g.lastError() != nil {
		t.Errorf("error %v, %v", s.err, g.lastError())
	}
	g.connected(g.all[0])
	g.closed(g.all[0], false, now, refused)
	if !s.failed(now, refused) || s.err != refused || g.lastError() != refused {
		t.Errorf("error %v, %v", s.err, g.lastError())
	}
}

func TestErrorsThatComeInTurnAreToldOnce(t *testing.T) {
	var s linkStatus
	told := 0
	fails := func(err error) {
		if s.failed(nil, err) {
			told++
		}
	}
	for i := range 100 {
		fails(errors.New("dial tcp 203.0.113.7:15443: connect: connection refused"))
		fails(errors.New("no answer within 3s"))
		fails(unwrapGRPC(status.Errorf(codes.Unavailable,
			`connection error: desc = "transport: authentication handshake failed: read tcp 10.0.0.1:%d->203.0.113.7:15443: read: connection reset by peer"`, 40000+i)))
	}
	if told != 3 {
		t.Errorf("told %d times of 3 errors", told)
	}
	if got := s.err.Error(); got != "authentication handshake failed: read tcp 203.0.113.7:15443: read: connection reset by peer" {
		t.Errorf("error %q", got)
	}
	fails(nil)
	fails(errors.New("no answer within 3s"))
	if told != 4 {
		t.Error("an error after the peer was heard is not told")
	}
}

func TestAnAlertThatIsLostOnTheWayOnceIsRemembered(t *testing.T) {
	var s linkStatus
	refused := withRemedy(tlsAlert{errors.New("remote error: tls: bad certificate")}, false)
	s.failed(nil, refused)
	if s.failed(nil, withRemedy(errHungUp, false)) || s.err != refused {
		t.Errorf("error %v", s.err)
	}
	s.failed(nil, errNeverHeard)
	s.failed(nil, errHungUp)
	if s.err != errHungUp {
		t.Errorf("error %v", s.err)
	}
}

// refusing is a connection whose other end has refused it and hung up: once a write has failed,
// an alert can be read.
type refusing struct {
	net.Conn
	wrote chan struct{}
	alert error
}

func (r *refusing) Write([]byte) (int, error) {
	close(r.wrote)
	return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
}

func (r *refusing) Read([]byte) (int, error) {
	<-r.wrote
	return 0, r.alert
}

func TestWhatTheOtherEndSaidBeforeItHungUpIsRead(t *testing.T) {
	for _, c := range []struct {
		read error
		want error
	}{
		{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, tlsAlert{&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}}},
		{&net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}, errHungUp},
	} {
		o := newCloseRecorder(insecure.NewCredentials())
		conn, _, err := o.ClientHandshake(t.Context(), "east", &refusing{wrote: make(chan struct{}), alert: c.read})
		if err != nil {
			t.Fatal(err)
		}
		read := make(chan error)
		go func() {
			_, err := conn.Read(nil)
			read <- err
		}()
		if _, err := conn.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write: %v", err)
		}
		if got := o.reason(); got == nil || got.Error() != c.want.Error() {
			t.Errorf("why nothing was heard, right after Write: %v; want %v", got, c.want)
		}
		<-read
	}
}

func TestWhatListensAndSaysNothingIsSaidToBeNoGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := peeringtest.New(1)
		l, err := n.Host("dns").Listen("15443")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				t.Cleanup(func() { conn.Close() })
			}
		}()
		west := newSite(t, n, "west", selection("checkout", "orders"), at("east", 2*time.Second, "dns"))
		const want = "connected, but nothing was heard; the other end may be no gateway"
		west.takes(2*firstMessageWithin, "said so", func() bool { return strings.HasPrefix(west.status().Error, want) })
		if text := west.links.Describe("east"); !strings.HasPrefix(text, "not heard yet; "+want) {
			t.Errorf("described as %q", text)
		}
	})
}

func TestWhatHangsUpInTheHandshakeIsSaidToBeNoGateway(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { l.Close() })()
		for {
			conn, err := l.Accept()
			if err != nil {
				return ctx.Err()
			}
			conn.Close()
		}
	})
	west := newPlace(t, "west", withTLS(t)("west"), selection("checkout", "orders"))
	links, _ := west.link(reaches("east", enough, l.Addr().String()))
	within(t, "said so", func() bool {
		got := only(links).Error
		return strings.HasPrefix(got, "authentication handshake failed: ") && strings.HasSuffix(got, "; "+hangsUpRemedy)
	})
}
