package relay

import (
	"io"
	"sync"
	"testing"
)

func TestPipesAreBoundedAndUsedAgain(t *testing.T) {
	var ps pipes
	var lent []*pipe
	for range maxPipes {
		p := ps.get()
		if p == nil {
			t.Skipf("this user may have %d pipes only", len(lent))
		}
		lent = append(lent, p)
	}
	if ps.get() != nil {
		t.Errorf("more than %d pipes", maxPipes)
	}
	first := lent[0]
	ps.put(first)
	if again := ps.get(); again != first {
		t.Error("an empty pipe that came back was not lent again")
	}
	first.held = 1
	ps.put(first)
	if again := ps.get(); again == first || again == nil {
		t.Error("a pipe with something in it was lent again, or its place is lost")
	} else {
		ps.put(again)
	}
	for _, p := range lent[1:] {
		ps.put(p)
	}
	if len(ps.spare) != maxSpare || ps.open != maxSpare {
		t.Errorf("%d spare of %d open; want %d", len(ps.spare), ps.open, maxSpare)
	}
	ps.close()
}

// With no pipe to be had the relay copies bulk, which arrives just the same.
func TestBulkWithoutPipes(t *testing.T) {
	for _, w := range nativeWays {
		t.Run(w.name, func(t *testing.T) {
			p, client, server := pass(t, w, Config{})
			for _, l := range p.relay.(*Epoll).loops {
				l.Call(func() { l.pipes.pause = 1 << 30 })
			}
			exchange(t, client, server, 10<<20)
		})
	}
}

// More stalled receivers than there are pipes keep nobody else from being served.
func TestManyReadersThatDoNotRead(t *testing.T) {
	for _, w := range nativeWays {
		t.Run(w.name, func(t *testing.T) {
			first, _, _ := pass(t, w, Config{})
			var writes sync.WaitGroup
			t.Cleanup(writes.Wait)
			for range 2*maxPipes + 10 {
				_, client, server := first.another(t)
				client.SetReadBuffer(4096)
				writes.Go(func() { io.Copy(server, zeros{}) })
				t.Cleanup(func() { server.Close() })
			}
			for range 3 {
				_, client, server := first.another(t)
				exchange(t, client, server, 4<<20)
			}
		})
	}
}
