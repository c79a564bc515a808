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
	Need(t)
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

// patience is how long each datagram is waited for.
const patience = time.Minute

// inFlight is how many datagrams are sent before those are waited for: no more than a device
// holds.
const inFlight = 50

// send sends a numbered datagram.
func send(t *testing.T, from *net.UDPConn, to netip.Addr, number uint32) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort(binary.BigEndian.AppendUint32(nil, number), netip.AddrPortFrom(to, 7000)); err != nil {
		t.Fatal(err)
	}
}

// pass sends so many numbered datagrams to another place, and returns the numbers of those
// that arrived, once the network has said of the others that they vanished.
func pass(t *testing.T, n *Network, from, at *net.UDPConn, to netip.Addr, count int) (arrived []uint32) {
	t.Helper()
	before, buffer := vanished(n), make([]byte, 64)
	for i := range count {
		send(t, from, to, uint32(i))
		if i%inFlight != inFlight-1 && i != count-1 {
			continue
		}
		for end := time.Now().Add(patience); len(arrived)+vanished(n)-before < i+1; {
			_ = at.SetReadDeadline(time.Now().Add(10 * time.Millisecond)) // Read fails when this does
			size, err := at.Read(buffer)
			if errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(end) {
				continue // what is awaited may have vanished
			}
			if err != nil || size != 4 {
				t.Fatalf("of %d datagrams %d arrived and %d vanished, then %d bytes, %v", i+1, len(arrived), vanished(n)-before, size, err)
			}
			arrived = append(arrived, binary.BigEndian.Uint32(buffer))
		}
	}
	return arrived
}

// vanished is how many packets were lost, by chance or by rule.
func vanished(n *Network) int {
	counts := n.Counts()
	return counts.Lost + counts.Dropped
}

func TestPacketsArriveInOrder(t *testing.T) {
	n, w, e := pair(t)
	got := pass(t, n, listen(t, w, west), listen(t, e, east2), east2, 500)
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
		best := time.Hour // of several, and of more where a busy machine adds to all
		for i, end := 0, time.Now().Add(patience); i < 5 || best > way.most && time.Now().Before(end); i++ {
			start := time.Now()
			send(t, way.from, way.target, 0)
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
	got := len(pass(t, n, from, to, east, sent))
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
		if got := pass(t, n, in[from], in[to], to, 1); (len(got) == 1) != arrives {
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
