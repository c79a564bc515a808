package consulapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/sandbox/servers/serverstest"
)

func filterPath(filter string) string {
	return "/v1/health/service/checkout?filter=" + url.QueryEscape(filter)
}

// either is a filter of n comparisons.
func either(n int, of string) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("Service.ID==%s%d", of, i)
	}
	return strings.Join(all, " or ")
}

// TestFiltersAreReadOneAtATime: who asks for anything else is answered meanwhile, and so is
// who uses a filter that is known; of the same filter one is read, and who gives up goes.
func TestFiltersAreReadOneAtATime(t *testing.T) {
	i := ours(t)
	if r := i.do(t, "checkout", "GET", filterPath(either(3, "known")), ""); r.code != 200 {
		t.Fatal(r)
	}
	f := i.server.filters
	f.turn <- struct{}{} // as if somebody's were being read
	before := f.read.Load()

	waits := func(app string) func() bool { return func() bool { return len(i.server.callers[shop(app)].turn) == 1 } }
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan int, 1)
	go func() {
		code := 0
		for ctx.Err() == nil && code != 200 { // again, where the machine is that slow
			q, _ := http.NewRequestWithContext(ctx, "GET", i.url+filterPath(either(4, "gone")), nil)
			q.Header.Set("X-Consul-Token", i.tokens["checkout"])
			if r, err := http.DefaultTransport.RoundTrip(q); err == nil {
				code = r.StatusCode
				r.Body.Close()
			}
		}
		gone <- code
	}()
	serverstest.Await(t, "one waits who is going to give up", waits("checkout"))
	cancel()
	if <-gone == 200 {
		t.Error("one who had given up was answered, while nothing was read")
	}
	serverstest.Await(t, "who has given up is gone", func() bool { return !waits("checkout")() })

	var asking sync.WaitGroup
	ask := func(app, filter string) {
		asking.Go(func() {
			r := response{code: http.StatusServiceUnavailable}
			for r.code == http.StatusServiceUnavailable { // again, where the machine is that slow
				r = i.do(t, app, "GET", filterPath(filter), "")
			}
			if r.code != 200 {
				t.Errorf("%s: %d %s", app, r.code, r.body)
			}
		})
	}
	for range 5 {
		ask("checkout", either(2, "same"))
		ask("orders", either(2, "same"))
		ask("orders", either(3, "more"))
	}
	serverstest.Await(t, "checkout waits", waits("checkout"))
	serverstest.Await(t, "orders waits", waits("orders"))
	for name, c := range map[string]struct {
		app, path string
		code      int
	}{
		"without a filter":       {"checkout", "/v1/health/service/checkout", 200},
		"with a known one":       {"checkout", filterPath(either(3, "known")), 200},
		"nobody, with a filter":  {"anonymous", filterPath(either(9, "x")), 200},
		"nobody, with any text":  {"anonymous", filterPath(strings.Repeat(")(", 30_000)), 200},
		"nobody, of the agent's": {"anonymous", "/v1/agent/checks?filter=" + url.QueryEscape(either(9, "x")), 200},
		"one that is too long":   {"checkout", filterPath(strings.Repeat("x", longestFilter+1)), 400},
		"a stranger":             {"stranger", filterPath(either(9, "x")), 403},
	} {
		if r := i.do(t, c.app, "GET", c.path, ""); r.code != c.code {
			t.Errorf("%s, while a filter is read: %d %.200s", name, r.code, r.body)
		}
	}
	if n := f.read.Load() - before; n != 0 {
		t.Errorf("%d filters were read beside another one", n)
	}
	<-f.turn
	asking.Wait()
	if n := f.read.Load() - before; n != 2 {
		t.Errorf("%d filters were read, want 2: each once", n)
	}
}

// TestAFilterHasBounds, and says them.
func TestAFilterHasBounds(t *testing.T) {
	i := ours(t)
	if r := i.do(t, "checkout", "PUT", "/v1/agent/service/register", `{"ID":"y7","Name":"checkout","Port":7}`); r.code != 200 {
		t.Fatal(r)
	}
	for _, c := range []struct {
		filter string
		code   int
		text   string
		read   int64
	}{
		{either(mostComparisons, "x"), 200, "", 1}, // nothing but an empty list
		{either(mostComparisons, "y"), 200, `"ID":"y7"`, 1},
		{either(mostComparisons+1, "x"), 400, "has 513 comparisons; at most 512 fit", 1},
		{strings.Repeat(" ", longestFilter), 400, "16400 bytes long; at most 16384 fit", 0}, // and what follows below
		{strings.Repeat("(", 20) + "a==b" + strings.Repeat(")", 20), 400, "fewer parentheses", 1},
	} {
		if strings.TrimSpace(c.filter) == "" {
			c.filter += "Service.ID==abcd"
		}
		before := i.server.filters.read.Load()
		for range 2 {
			r := i.do(t, "checkout", "GET", filterPath(c.filter), "")
			if r.code != c.code || !strings.Contains(r.body, c.text) || c.text == "" && r.body != "[]" {
				t.Errorf("%.40s of %d bytes: %d %.200s", c.filter, len(c.filter), r.code, r.body)
			}
		}
		if n := i.server.filters.read.Load() - before; n != c.read {
			t.Errorf("%.40s: read %d times, want %d", c.filter, n, c.read)
		}
	}
}

// TestTheFilterThatWasNotUsedForLongestGoes, so that there are never more than a number.
func TestTheFilterThatWasNotUsedForLongestGoes(t *testing.T) {
	f := newFilters()
	for n := range mostPrepared {
		f.remember(fmt.Sprint(n), &prepared{})
	}
	f.known("0")
	f.remember("more", &prepared{})
	if len(f.all) != mostPrepared || f.known("0") == nil || f.known("1") != nil || f.known("more") == nil {
		t.Errorf("%d are kept", len(f.all))
	}
}
