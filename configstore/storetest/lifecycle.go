package storetest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func lifecycle() []specification {
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

// slowReader tries it some times: a reader gets the one change that it was busy with and the
// newest, but more where its own connection is behind that of the fast reader when it is
// released, as on a machine that is busy.
func slowReader(t *testing.T, b Backend) {
	s := open(t, b)
	slow := Watch(t, s, "")
	slow.awaitSet()
	const tries, last = 5, 40
	var kept []int
	for try := range tries {
		slow.block()
		network := func(n int) catalog.Object { return Cluster("east", fmt.Sprintf("t%d-n%02d", try, n)) }
		put(t, b, s, network(0))
		fast := Watch(t, s, "")
		for i := 1; i <= last; i++ {
			put(t, b, s, network(i))
		}
		fast.awaitSet(network(last))
		before := len(slow.All())
		slow.release()
		slow.awaitSet(network(last))
		if kept = append(kept, len(slow.All())-before); kept[try] <= last/4 {
			return
		}
	}
	t.Errorf("of each %d changes %v were kept for a reader that was busy", last, kept)
}

func contextEnds(t *testing.T, b Backend) {
	s := open(t, b)
	r := Watch(t, s, "")
	r.awaitSet()
	r.cancel()
	if err := r.AwaitEnd(); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch ended with %v, want context.Canceled", err)
	}
	put(t, b, s, Cluster("east", "a")) // the store goes on
	Watch(t, s, "").awaitSet(Cluster("east", "a"))

	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Watch(ended, "", func(configstore.Change) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("Watch with a context that has ended: %v, want context.Canceled", err)
	}
}

func readerFails(t *testing.T, b Backend) {
	s := open(t, b)
	other := Watch(t, s, "")
	mine := errors.New("the reader's own")
	err := s.Watch(t.Context(), "", func(configstore.Change) error { return mine })
	if !errors.Is(err, mine) {
		t.Errorf("Watch ended with %v, want the error of its reader", err)
	}
	put(t, b, s, Cluster("east", "a"))
	other.awaitSet(Cluster("east", "a"))
}

func closeEnds(t *testing.T, b Backend) {
	s := open(t, b)
	readers := []*Reader{Watch(t, s, ""), Watch(t, s, "")}
	for _, r := range readers {
		r.awaitSet()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, r := range readers {
		if err := r.AwaitEnd(); !errors.Is(err, configstore.ErrClosed) {
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
	_, writeErr := s.Write(t.Context(), configstore.Write{Object: Cluster("east", "a")})
	watchErr := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
	for what, err := range map[string]error{"get": getErr, "list": listErr, "write": writeErr, "watch": watchErr} {
		if !errors.Is(err, configstore.ErrClosed) {
			t.Errorf("%s on a closed store: %v, want ErrClosed", what, err)
		}
	}
}

// noGoroutine counts the goroutines that it is the origin of, by a label that they have from
// it: other tests may run beside it.
func noGoroutine(t *testing.T, b Backend) {
	pprof.Do(t.Context(), pprof.Labels(label, t.Name()), func(context.Context) { leavesNone(t, b) })
}

const label = "specification"

func leavesNone(t *testing.T, b Backend) {
	s := open(t, b)
	warm := Watch(t, s, "") // what a store starts once is not counted
	warm.awaitSet()
	put(t, b, s, Cluster("east", "a")) // once it comes, all that a Watch starts is at work
	warm.awaitSet(Cluster("east", "a"))
	before := watchers(t)
	for range 5 {
		r := Watch(t, s, "")
		r.awaitSet(Cluster("east", "a"))
		r.stop()
	}
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		after := watchers(t)
		if after <= before {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d goroutines in configstore before, %d after five Watches have ended", before, after)
		}
	}
}

// counted is how many goroutines a part of a profile is of.
var counted = regexp.MustCompile(`(?m)^(\d+) @`)

// watchers counts the goroutines of a test that run code of a store.
func watchers(t *testing.T) int {
	t.Helper()
	var text strings.Builder // a part for all goroutines with the same stack and labels
	if err := pprof.Lookup("goroutine").WriteTo(&text, 1); err != nil {
		t.Fatal(err)
	}
	n := 0
	for same := range strings.SplitSeq(text.String(), "\n\n") {
		if strings.Contains(same, strconv.Quote(t.Name())) && (strings.Contains(same, "/configstore/") || strings.Contains(same, "fsnotify")) {
			many, err := strconv.Atoi(counted.FindStringSubmatch(same)[1])
			if err != nil {
				t.Fatal(err)
			}
			n += many
		}
	}
	if n == 0 {
		t.Fatal("no goroutine runs code of a store, not even this one")
	}
	return n
}

func followed(t *testing.T, b Backend) {
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	f := Follow(t, s)
	f.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	put(t, b, s, Cluster("east", "b"))
	remove(t, s, Cluster("west", ""))
	f.awaitSet(Cluster("east", "b"))
	var got []string
	for i, c := range f.All() {
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
	f.AwaitStatus("what stands", func(s configstore.Status) bool {
		return s.Synced && s.Err == nil && s.Objects == 1 && s.Version != "" && !s.Heard.IsZero()
	})
}
