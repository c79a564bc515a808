package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	os.Exit(Own(func() int {
		code := m.Run()
		if code == 0 {
			if err := goleak.Find(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 1
			}
		}
		return code
	}))
}

var (
	west  = netip.MustParseAddr("10.77.1.1")
	east  = netip.MustParseAddr("10.77.2.1")
	east2 = netip.MustParseAddr("10.77.2.2")
	all   = netip.MustParsePrefix("10.77.0.0/16")
)

// only is the one address.
func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// pair is a network of two places.
func pair(t *testing.T) (n *Network, w, e *Place) {
	t.Helper()
	n = New(1)
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	if w, err = n.Place(west); err != nil {
		t.Fatal(err)
	}
	if e, err = n.Place(east, east2); err != nil {
		t.Fatal(err)
	}
	return n, w, e
}

// listen receives datagrams at an address of a place.
func listen(t *testing.T, p *Place, at netip.Addr) *net.UDPConn {
	t.Helper()
	var conn *net.UDPConn
	err := p.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, 7000)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// send sends so many numbered datagrams.
func send(t *testing.T, from *net.UDPConn, to netip.Addr, count int) {
	t.Helper()
	for i := range count {
		if _, err := from.WriteToUDPAddrPort(binary.BigEndian.AppendUint32(nil, uint32(i)), netip.AddrPortFrom(to, 7000)); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			time.Sleep(time.Millisecond) // no more than a device holds
		}
	}
}

// arriving collects the numbers of the datagrams that arrive until nothing does for a while.
func arriving(t *testing.T, at *net.UDPConn, silence time.Duration) (collect func() []uint32) {
	t.Helper()
	all := make(chan []uint32, 1)
	go func() {
		defer close(all)
		var numbers []uint32
		for buffer := make([]byte, 64); ; {
			_ = at.SetReadDeadline(time.Now().Add(silence)) // Read fails when this does
			size, err := at.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				all <- numbers
				return
			}
			if err != nil || size != 4 {
				t.Errorf("%d bytes, %v", size, err)
				return
			}
			numbers = append(numbers, binary.BigEndian.Uint32(buffer))
		}
	}()
	return func() []uint32 { return <-all }
}

func TestPacketsArriveInOrder(t *testing.T) {
	_, w, e := pair(t)
	from, to := listen(t, w, west), listen(t, e, east2)
	collect := arriving(t, to, time.Second)
	send(t, from, east2, 500)
	got := collect()
	for i, number := range got {
		if number != uint32(i) {
			t.Fatalf("datagram %d arrived in place %d", number, i)
		}
	}
	if len(got) != 500 {
		t.Errorf("%d of 500 datagrams arrived", len(got))
	}
}

func TestDelayIsOfOneDirection(t *testing.T) {
	n, w, e := pair(t)
	const delay = 300 * time.Millisecond
	n.Set(only(west), only(east), Conditions{Delay: delay})
	from, to := listen(t, w, west), listen(t, e, east)
	for _, way := range []struct {
		name        string
		from, to    *net.UDPConn
		target      netip.Addr
		least, most time.Duration
	}{
		{"there", from, to, east, delay, time.Minute},
		{"back", to, from, west, 0, delay},
	} {
		best := time.Hour // of several: a busy machine adds to some
		for range 5 {
			start := time.Now()
			send(t, way.from, way.target, 1)
			if _, err := way.to.Read(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			best = min(best, time.Since(start))
		}
		t.Logf("%s takes %s", way.name, best)
		if best < way.least || best > way.most {
			t.Errorf("%s takes %s, want %s to %s", way.name, best, way.least, way.most)
		}
	}
}

func TestLossIsByChanceAndByTheSeed(t *testing.T) {
	n, w, e := pair(t)
	from, to := listen(t, w, west), listen(t, e, east)
	n.Set(all, only(east), Conditions{Loss: 0.05})
	const sent = 4000
	collect := arriving(t, to, time.Second)
	send(t, from, east, sent)
	got := len(collect())
	counts := n.Counts()
	// The standard deviation is 14 of 200: nine of them on either side.
	if lost := sent - got; lost < 75 || lost > 325 || lost != counts.Lost {
		t.Errorf("%d of %d datagrams are lost, %d of them by chance; want 5 %%", lost, sent, counts.Lost)
	}
	t.Logf("%d of %d datagrams lost", sent-got, sent)
}

func TestADropIsOfOneDirectionAndOneAddress(t *testing.T) {
	n, w, e := pair(t)
	in := map[netip.Addr]*net.UDPConn{west: listen(t, w, west), east: listen(t, e, east), east2: listen(t, e, east2)}
	try := func(from, to netip.Addr, arrives bool) {
		t.Helper()
		collect := arriving(t, in[to], 200*time.Millisecond)
		send(t, in[from], to, 1)
		if got := collect(); (len(got) == 1) != arrives {
			t.Errorf("from %s to %s: %d datagrams arrive, want any: %t", from, to, len(got), arrives)
		}
	}
	n.Set(all, only(east), Conditions{Drop: true})
	try(west, east, false)
	try(west, east2, true)
	try(east, west, true)
	n.Set(all, only(east), Conditions{})
	try(west, east, true)
	n.Set(only(east2), all, Conditions{Drop: true})
	try(east2, west, false)
	try(east, west, true)
	n.Heal()
	try(east2, west, true)
	if n := n.Counts().Dropped; n != 2 {
		t.Errorf("%d packets dropped, want 2", n)
	}
}

func TestConnectionsAndProcessesAreInThePlace(t *testing.T) {
	_, w, e := pair(t)
	var lis net.Listener
	err := e.Do(func() (err error) {
		lis, err = net.Listen("tcp", netip.AddrPortFrom(east, 7000).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	served := make(chan struct{})
	go func() {
		defer close(served)
		if conn, err := lis.Accept(); err == nil {
			fmt.Fprint(conn, conn.RemoteAddr().(*net.TCPAddr).IP)
			conn.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := w.Dial(ctx, "tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if text, err := io.ReadAll(conn); err != nil || string(text) != west.String() {
		t.Errorf("a connection from west comes from %q, %v; want %s", text, err, west)
	}
	<-served

	command := exec.CommandContext(ctx, "readlink", "/proc/self/ns/net")
	var out strings.Builder
	command.Stdout = &out
	if err := w.Do(command.Start); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Fatal(err)
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got == ours || !strings.HasPrefix(got, "net:[") {
		t.Errorf("a process of the place is in %s, which is ours: %s", got, ours)
	}
}

// Every thread is back where it was, also of those that went into a place.
func TestNobodyStaysInAPlace(t *testing.T) {
	_, w, _ := pair(t)
	for range 20 {
		if err := w.Do(func() error { return errors.New("whatever") }); err == nil {
			t.Fatal("the error is lost")
		}
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		if its, err := os.Readlink(thread); err == nil && its != ours {
			t.Errorf("%s is %s, and not %s", thread, its, ours)
		}
	}
}

func TestAnAddressBelongsToOnePlace(t *testing.T) {
	n, _, _ := pair(t)
	for _, address := range []string{"10.77.2.2", "fd00::1"} {
		if _, err := n.Place(netip.MustParseAddr(address)); err == nil {
			t.Errorf("%s is taken for another place", address)
		}
	}
}
