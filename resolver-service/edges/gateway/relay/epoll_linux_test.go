package relay

import (
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// nativeWays are those of Linux. In one the loop itself connects to the backend.
var nativeWays = []way{{"epoll", New, byPass}, {"connect", New, byConnect}}

// byConnect is [Loop.Connect].
func byConnect(t *testing.T, r Relay, client *net.TCPConn, backend string, o *owner) {
	fd, err := takeOver(client)
	if err != nil {
		t.Fatal(err)
	}
	loop := r.(*Epoll).loops[int(r.(*Epoll).next.Add(1))%Loops()]
	loop.Call(func() {
		err = loop.Connect(fd, []byte(firstBytes), o, netip.MustParseAddrPort(backend), func(int, []byte, error) {
			t.Error("the backend could not be reached")
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestConnectHandsTheClientBack(t *testing.T) {
	r, err := New(Config{Stall: patience, Connect: patience, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	client, in := connected(t)
	fd, err := takeOver(in)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0) // bound, so nobody else listens there
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(socket)
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(socket)
	if err != nil {
		t.Fatal(err)
	}
	dead := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(sa.(*unix.SockaddrInet4).Port))
	failed := make(chan string, 1)
	o, loop := newOwner(), r.(*Epoll).loops[0]
	loop.Call(func() {
		again := func(client int, first []byte, err error) {
			unix.Write(client, []byte("from "+string(first)))
			unix.Close(client)
			failed <- err.Error()
		}
		if err := loop.Connect(fd, []byte(firstBytes), o, dead, again); err != nil {
			again(fd, []byte(firstBytes), err)
		}
	})
	<-failed
	if got, _ := io.ReadAll(client); string(got) != "from "+firstBytes || o.over() {
		t.Errorf("the client got %q, and its owner was told of an end: %v", got, o.over())
	}
}

// A loop that was busy learns of an end and of the reset that followed in one event.
// Reading tells of the end only, and no second event comes.
func TestResetRightAfterHalfCloseIsPassedOn(t *testing.T) {
	sides(t, Config{}, func(t *testing.T, p *passed, acts, other *net.TCPConn) {
		if p.way == "copy" {
			t.Skip("it has no loop")
		}
		held, release := make(chan struct{}), make(chan struct{})
		for _, l := range p.relay.(*Epoll).loops {
			l.Post(func() { held <- struct{}{}; <-release })
			<-held
		}
		acts.CloseWrite()
		Reset(acts)
		close(release)
		if _, err := other.Read(make([]byte, 1)); err == nil {
			t.Fatal("read something that was never sent")
		}
		p.ends(t) // nothing more is sent: that would tell by itself
	})
}

func TestAPairThatCantBeTakenOverIsReported(t *testing.T) {
	failed := 0
	r, err := New(Config{
		Stall: time.Minute, Logger: slog.New(slog.DiscardHandler), Failed: func(error) { failed++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	client, _ := connected(t)
	backend, _ := connected(t)
	client.Close() // as good as no descriptor to be had
	o := newOwner()
	r.Pass(client, backend, o)
	if failed != 1 || !o.over() {
		t.Errorf("%d failures were reported and the pair's end: %v; want 1 and true", failed, o.over())
	}
}
