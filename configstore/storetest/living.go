package storetest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func living() []specification {
	return []specification{
		{"a slow reader holds nobody up, and skips to the newest", slowReader},
		{"a Watch ends when its context does", contextEnds},
		{"an error of the reader ends its Watch, and no other", readerFails},
		{"Close ends every Watch", closeEnds},
		{"a closed store says so", closedSays},
		{"a Watch that has ended leaves no goroutine", noGoroutine},
		{"a Follower hands on what stands, and then only what changes", followed},
	}
}

func slowReader(t *testing.T, b Backend) {
	s := open(t, b)
	slow := watch(t, s, "")
	slow.awaitSet()
	slow.block()
	put(t, b, s, cluster("east", "n00"))
	fast := watch(t, s, "")
	const last = 40
	for i := 1; i <= last; i++ {
		put(t, b, s, cluster("east", fmt.Sprintf("n%02d", i)))
	}
	newest := cluster("east", fmt.Sprintf("n%02d", last))
	fast.awaitSet(newest)
	before := len(slow.all())
	slow.release()
	slow.awaitSet(newest)
	// The one that it was busy with and the newest; a few more where its own connection was
	// behind that of the fast reader when it was released.
	if got := len(slow.all()) - before; got > last/4 {
		t.Errorf("%d of %d changes were kept for a reader that was busy", got, last)
	}
}

func contextEnds(t *testing.T, b Backend) {
	s := open(t, b)
	r := watch(t, s, "")
	r.awaitSet()
	r.cancel()
	if err := r.awaitEnd(); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch ended with %v, want context.Canceled", err)
	}
	put(t, b, s, cluster("east", "a")) // the store goes on
	watch(t, s, "").awaitSet(cluster("east", "a"))

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Watch(ended, "", func(configstore.Change) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch with a context that has ended: %v, want context.Canceled", err)
	}
}

func readerFails(t *testing.T, b Backend) {
	s := open(t, b)
	other := watch(t, s, "")
	mine := errors.New("the reader's own")
	err := s.Watch(t.Context(), "", func(configstore.Change) error { return mine })
	if !errors.Is(err, mine) {
		t.Errorf("Watch ended with %v, want the error of its reader", err)
	}
	put(t, b, s, cluster("east", "a"))
	other.awaitSet(cluster("east", "a"))
}

func closeEnds(t *testing.T, b Backend) {
	s := open(t, b)
	readers := []*reader{watch(t, s, ""), watch(t, s, "")}
	for _, r := range readers {
		r.awaitSet()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range readers {
		if err := r.awaitEnd(); !errors.Is(err, configstore.ErrClosed) {
			t.Errorf("Watch ended with %v, want ErrClosed", err)
		}
	}
}

func closedSays(t *testing.T, b Backend) {
	s := b.Open(t)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil && !errors.Is(err, configstore.ErrClosed) {
		t.Errorf("closed twice: %v", err)
	}
	_, getErr := s.Get(t.Context(), eastKey)
	_, _, listErr := s.List(t.Context())
	_, writeErr := s.Write(t.Context(), configstore.Write{Object: cluster("east", "a")})
	watchErr := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
	for what, err := range map[string]error{"get": getErr, "list": listErr, "write": writeErr, "watch": watchErr} {
		if !errors.Is(err, configstore.ErrClosed) {
			t.Errorf("%s on a closed store: %v, want ErrClosed", what, err)
		}
	}
}

func noGoroutine(t *testing.T, b Backend) {
	s := open(t, b)
	warm := watch(t, s, "") // what a store starts once is not counted
	warm.awaitSet()
	put(t, b, s, cluster("east", "a")) // once it comes, all that a Watch starts is at work
	warm.awaitSet(cluster("east", "a"))
	before := watchers()
	for range 5 {
		r := watch(t, s, "")
		r.awaitSet(cluster("east", "a"))
		r.stop()
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		after := watchers()
		if after <= before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines in configstore before, %d after five Watches have ended", before, after)
		}
	}
}

// watchers counts the goroutines that run code of a store.
func watchers() int {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	n := 0
	for stack := range strings.SplitSeq(string(stacks), "\n\n") {
		if strings.Contains(stack, "/configstore/") || strings.Contains(stack, "fsnotify") {
			n++
		}
	}
	return n
}

func followed(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, cluster("east", "a"), cluster("west", "a"))
	f := follow(t, s)
	f.awaitSet(cluster("east", "a"), cluster("west", "a"))
	put(t, b, s, cluster("east", "b"))
	remove(t, s, cluster("west", ""))
	f.awaitSet(cluster("east", "b"))
	var got []string
	for i, c := range f.all() {
		if c.Full != (i == 0) {
			t.Errorf("change %d: Full is %t; only the first is", i, c.Full)
		}
		for _, o := range c.Objects {
			got = append(got, o.Object.Key().Name+"="+o.Object.(*catalog.Cluster).Network)
		}
	}
	if text := strings.Join(got, " "); text != "east=a west=a east=b" {
		t.Errorf("handed on %q, want each change once", text)
	}
	f.awaitStatus("what stands", func(s configstore.Status) bool {
		return s.Synced && s.Err == nil && s.Objects == 1 && s.Version != "" && !s.Heard.IsZero()
	})
}
