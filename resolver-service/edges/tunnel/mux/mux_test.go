package mux

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	mrand "math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// connected are both ends of a connection by TCP.
func connected(t testing.TB) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// pair are a session that opens streams and what the other one accepts.
type pair struct {
	opener, accepter *Session
	accepted         chan *Stream
	budget           *Budget
	ends             [2]chan error
}

const testBudget = 8 << 20

func newPair(t testing.TB, a, b net.Conn, change func(*Config)) *pair {
	p := &pair{accepted: make(chan *Stream, 1000), budget: NewBudget(testBudget)}
	cfg := Config{Budget: p.budget, Streams: 1000, Silence: time.Second, Stall: patience}
	if change != nil {
		change(&cfg)
	}
	p.opener = New(a, cfg)
	cfg.Accept = func(s *Stream) { p.accepted <- s }
	p.accepter = New(b, cfg)
	for n, s := range []*Session{p.opener, p.accepter} {
		p.ends[n] = make(chan error, 1)
		go func() { p.ends[n] <- s.Run() }()
	}
	t.Cleanup(func() {
		p.opener.Close()
		p.accepter.Close()
		<-p.opener.Done()
		<-p.accepter.Done()
	})
	return p
}

func tcpPair(t testing.TB) *pair {
	a, b := connected(t)
	return newPair(t, a, b, nil)
}

func (p *pair) open(t testing.TB) (here, there *Stream) {
	t.Helper()
	here, err := p.opener.Open()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case there = <-p.accepted:
		return here, there
	case <-time.After(patience):
		t.Fatal("the stream did not arrive")
		return nil, nil
	}
}

func awaitStreams(t *testing.T, s *Session, n int) {
	t.Helper()
	for end := time.Now().Add(patience); s.Streams() != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d streams are open; want %d", s.Streams(), n)
		}
	}
}

func TestBytesArriveBothWaysAndEachWayEndsByItself(t *testing.T) {
	p := tcpPair(t)
	var all sync.WaitGroup
	for range 20 {
		here, there := p.open(t)
		sent := make([]byte, mrand.IntN(3<<20))
		rand.Read(sent)
		all.Go(func() {
			here.Write(sent)
			here.CloseWrite()
			if got, err := io.ReadAll(here); err != nil || !bytes.Equal(got, sent) {
				t.Errorf("got %d bytes back of %d: %v", len(got), len(sent), err)
			}
			here.Close()
		})
		all.Go(func() {
			got, err := io.ReadAll(there) // the other way is open still
			if err != nil {
				t.Error(err)
			}
			there.Write(got)
			there.CloseWrite()
			there.Close()
		})
	}
	all.Wait()
	awaitStreams(t, p.opener, 0)
	awaitStreams(t, p.accepter, 0)
	if left := p.budget.free.Load(); left != testBudget {
		t.Errorf("%d bytes of the budget were not given back", testBudget-left)
	}
}

func TestAStreamThatIsNotReadStopsItsOwnSenderAlone(t *testing.T) {
	p := tcpPair(t)
	stalled, _ := p.open(t)
	stalled.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	n, err := stalled.Write(make([]byte, 10*FirstWindow))
	if n != FirstWindow || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wrote %d bytes that nobody reads: %v; want %d and a deadline", n, err, FirstWindow)
	}
	here, there := p.open(t)
	go func() { io.Copy(there, there); there.CloseWrite() }()
	began := time.Now()
	for range 1000 {
		var b [100]byte
		here.Write(b[:])
		if _, err := io.ReadFull(here, b[:]); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("1,000 round trips beside a stalled stream took %v", took)
	}
	here.CloseWrite()
}

func TestAResetEndsBothDirectionsThere(t *testing.T) {
	p := tcpPair(t)
	here, there := p.open(t)
	here.Write([]byte("hello"))
	io.ReadFull(there, make([]byte, 5))
	here.Reset()
	if _, err := there.Read(make([]byte, 1)); !errors.Is(err, ErrReset) {
		t.Errorf("a read of a stream that was reset says %v", err)
	}
	if _, err := there.Write([]byte("x")); !errors.Is(err, ErrReset) {
		t.Errorf("a write to a stream that was reset says %v", err)
	}
	awaitStreams(t, p.accepter, 0)
}

func TestAClosedStreamStopsASenderThatGoesOn(t *testing.T) {
	p := tcpPair(t)
	here, there := p.open(t)
	here.Write([]byte("last words"))
	here.Close()
	if got, err := io.ReadAll(there); string(got) != "last words" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	for end := time.Now().Add(patience); ; {
		if _, err := there.Write(make([]byte, 100)); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("a sender was not told that nobody reads")
		}
	}
	awaitStreams(t, p.accepter, 0)
}

func TestTheEndOfTheConnectionEndsEveryStream(t *testing.T) {
	a, b := connected(t)
	p := newPair(t, a, b, nil)
	here, there := p.open(t)
	b.Close()
	if _, err := here.Read(make([]byte, 1)); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a read after the connection was lost says %v; EOF would look like a good end", err)
	}
	if _, err := there.Read(make([]byte, 1)); err == nil {
		t.Error("the other side reads on")
	}
	<-p.opener.Done()
	if _, err := p.opener.Open(); err == nil {
		t.Error("a session that has ended opens streams")
	}
	if n := p.opener.Streams(); n != 0 {
		t.Errorf("a session that has ended has %d streams", n)
	}
}

func TestTheLastStreamLeavesItsSession(t *testing.T) {
	p := tcpPair(t)
	if n := p.opener.Streams(); n != 0 {
		t.Errorf("a new session has %d streams", n)
	}
	here, there := p.open(t)
	if n := p.opener.Streams(); n != 1 {
		t.Errorf("a session with a stream has %d", n)
	}
	here.CloseWrite()
	there.CloseWrite()
	for deadline := time.Now().Add(patience); p.opener.Streams() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("a stream that is over in both directions stays")
		}
	}
	here.Close()
	there.Close()
}

func TestNotesArriveInOrder(t *testing.T) {
	got := make(chan string, 10)
	a, b := connected(t)
	p := newPair(t, a, b, func(c *Config) { c.Note = func(n []byte) { got <- string(n) } })
	p.opener.SendNote([]byte("one"))
	p.opener.SendNote([]byte("two"))
	if one, two := <-got, <-got; one != "one" || two != "two" {
		t.Errorf("got %q and %q", one, two)
	}
}

func TestASilentConnectionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		go io.Copy(io.Discard, b) // takes everything, and says nothing
		s := New(a, Config{Streams: 1, Silence: 2 * time.Second, Stall: time.Minute})
		began := time.Now()
		err := s.Run()
		if took := time.Since(began); !errors.Is(err, errSilent) || took != 8*time.Second {
			t.Errorf("after %v: %v; want %v after 8 s", took, err, errSilent)
		}
		b.Close()
	})
}

func TestAQuietConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		p := newPair(t, a, b, func(c *Config) { c.Silence = 2 * time.Second })
		time.Sleep(time.Hour)
		here, there := p.open(t)
		here.Close()
		there.Close()
	})
}

func TestAConnectionThatTakesNothingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		s := New(a, Config{Streams: 1, Stall: 10 * time.Second})
		go s.Open()
		if err := s.Run(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		b.Close()
	})
}

// frame is one of a hostile other side.
func frame(kind byte, id uint32, n int, payload ...byte) []byte {
	return append(appendHeader(nil, kind, id, n), payload...)
}

func TestWhatTheOtherSideCanCauseIsBounded(t *testing.T) {
	many := func(n int, f func(i int) []byte) []byte { // frames
		var all []byte
		for i := range n {
			all = append(all, f(i)...)
		}
		return all
	}
	for name, hostile := range map[string][]byte{
		"a stream that nobody may open twice": append(frame(kindOpen, 1, 0), frame(kindOpen, 1, 0)...),
		"ids that go back":                    append(frame(kindOpen, 9, 0), frame(kindOpen, 2, 0)...),
		"more than the window": append(frame(kindOpen, 1, 0), many(4, func(int) []byte {
			return frame(kindData, 1, maxData, make([]byte, maxData)...)
		})...),
		"credit without end": append(frame(kindOpen, 1, 0), many(3, func(int) []byte { return frame(kindCredit, 1, maxNumber) })...),
		"a frame too large":  frame(kindData, 1, maxNumber),
		"an unknown kind":    frame(99, 1, 0),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t)
			s := New(b, Config{Accept: func(*Stream) {}, Streams: 10, Stall: patience})
			a.Write(hostile)
			if err := s.Run(); !errors.Is(err, errWrong) {
				t.Errorf("it ended with %v", err)
			}
			a.Close()
		})
	}
}

// A peer that floods and reads no answers is ended, and has cost little by then.
func TestAFloodWhoseAnswersAreNotReadEnds(t *testing.T) {
	for name, flood := range map[string]func(id uint32) []byte{
		"streams": func(id uint32) []byte { return frame(kindOpen, id, 0) },
		"bytes of no stream": func(id uint32) []byte {
			return frame(kindData, 1<<31, 1, 'x')
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := connected(t)
			defer a.Close()
			a.(*net.TCPConn).SetReadBuffer(4096) // which the answers fill
			b.(*net.TCPConn).SetWriteBuffer(4096)
			s := New(b, Config{Accept: func(st *Stream) { st.Reset() }, Streams: 10, Stall: patience})
			ended := make(chan error, 1)
			go func() { ended <- s.Run() }()
			for id := uint32(1); id < 10_000_000; id += 1000 {
				var all []byte
				for n := range uint32(1000) {
					all = append(all, flood(id+n)...)
				}
				if _, err := a.Write(all); err != nil {
					break
				}
			}
			if err := <-ended; err == nil {
				t.Error("it ended without an error")
			}
		})
	}
	t.Run("pings", func(t *testing.T) { // have one answer at a time
		a, b := connected(t)
		s := New(b, Config{Streams: 1, Stall: patience})
		go s.Run()
		a.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		for pings := bytes.Repeat(frame(kindPing, 0, 0), 1000); ; {
			if _, err := a.Write(pings); err != nil {
				break
			}
		}
		s.out.Lock()
		waiting := len(s.pending)
		s.out.Unlock()
		if waiting > headerSize {
			t.Errorf("%d bytes of pongs wait", waiting)
		}
		a.Close()
		<-s.Done()
	})
}

// Bytes that arrive one by one, and are not read, take no more than their number.
func TestStreamsThatAreNotReadTakeTheirWindows(t *testing.T) {
	const streams = 100
	a, b := connected(t)
	s := New(b, Config{Accept: func(*Stream) {}, Streams: streams, Stall: patience, Budget: NewBudget(testBudget)})
	go s.Run()
	before := heap()
	var all []byte
	for id := uint32(1); id <= streams; id++ {
		all = append(all, frame(kindOpen, id, 0)...)
	}
	a.Write(all)
	for id := uint32(1); id <= streams; id++ {
		a.Write(bytes.Repeat(frame(kindData, id, 1, 'x'), FirstWindow))
	}
	a.Write(frame(kindPing, 0, 0))
	io.ReadFull(a, make([]byte, headerSize))
	all = nil
	if used := heap() - before; used > streams*(FirstWindow+8<<10) {
		t.Errorf("%d streams that nobody reads hold %d KiB each", streams, used/streams>>10)
	}
	a.Close()
	<-s.Done()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestWindowsGrowByTheBudgetAlone(t *testing.T) {
	p := tcpPair(t)
	p.budget.free.Store(3 * FirstWindow) // enough for one stream to double twice
	var all sync.WaitGroup
	for range 4 {
		here, there := p.open(t)
		all.Go(func() {
			here.Write(make([]byte, 4<<20))
			here.CloseWrite()
			io.Copy(io.Discard, here)
			here.Close()
		})
		all.Go(func() {
			io.Copy(io.Discard, there)
			there.Close()
		})
	}
	all.Wait()
	if left := p.budget.free.Load(); left != 3*FirstWindow {
		t.Errorf("%d bytes are left of the budget; want all", left)
	}
}

// FuzzReceive has whatever bytes arrive end in an error or in nothing, and never in a panic.
func FuzzReceive(f *testing.F) {
	f.Add(append(frame(kindOpen, 1, 0), frame(kindData, 1, 3, 1, 2, 3)...))
	f.Add(append(frame(kindOpen, 1, 0), frame(kindFin, 1, 0)...))
	f.Add(append(frame(kindOpen, 7, 0), frame(kindReset, 7, 0)...))
	f.Add(append(frame(kindNote, 0, 2, 1, 2), frame(kindPing, 0, 0)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		a, b := net.Pipe()
		var taken sync.WaitGroup
		s := New(b, Config{Streams: 4, Stall: patience, Accept: func(st *Stream) {
			taken.Go(func() { io.Copy(io.Discard, st); st.Close() })
		}, Note: func([]byte) {}})
		go io.Copy(io.Discard, a)
		go func() { a.Write(in); a.Close() }()
		s.Run()
		taken.Wait()
		if s.Streams() != 0 {
			t.Error("streams are left")
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	p := tcpPair(b)
	here, there := p.open(b)
	go io.Copy(there, there)
	var message [256]byte
	for b.Loop() {
		here.Write(message[:])
		io.ReadFull(here, message[:])
	}
}

func BenchmarkBulk(b *testing.B) {
	p := tcpPair(b)
	here, there := p.open(b)
	go io.Copy(io.Discard, there)
	chunk := make([]byte, 32<<10)
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		here.Write(chunk)
	}
}
