package consulapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
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

// TestFiltersAreReadOneAtATime: requests without a filter, or with a known one, are answered
// meanwhile, and a client that gives up goes.
func TestFiltersAreReadOneAtATime(t *testing.T) {
	i := ours(t)
	if r := i.do(t, "checkout", "GET", filterPath(either(3, "known")), ""); r.code != 200 {
		t.Fatal(r)
	}
	f := i.server.filters
	f.reading <- struct{}{} // as if another one were being read
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		q, _ := http.NewRequestWithContext(ctx, "GET", i.url+filterPath(either(4, "gone")), nil)
		q.Header.Set("X-Consul-Token", i.tokens["checkout"])
		r, err := http.DefaultTransport.RoundTrip(q)
		if err == nil {
			r.Body.Close()
		}
		gone <- err
	}()
	var asking sync.WaitGroup
	for _, app := range []string{"checkout", "orders"} {
		asking.Go(func() {
			if r := i.do(t, app, "GET", filterPath(either(2, "same")), ""); r.code != 200 {
				t.Errorf("%s: %d %s", app, r.code, r.body)
			}
		})
	}
	for name, c := range map[string]struct {
		app, path string
		code      int
	}{
		"without a filter":      {"checkout", "/v1/health/service/checkout", 200},
		"with a known one":      {"checkout", filterPath(either(3, "known")), 200},
		"nobody, with a filter": {"anonymous", filterPath(either(9, "x")), 200},
		"nobody, with any text": {"anonymous", filterPath(strings.Repeat(")(", 30_000)), 200},
		"one that is too long":  {"checkout", filterPath(strings.Repeat("x", longestFilter+1)), 400},
		"a stranger":            {"stranger", filterPath(either(9, "x")), 403},
	} {
		if r := i.do(t, c.app, "GET", c.path, ""); r.code != c.code {
			t.Errorf("%s, while a filter is read: %d %.200s", name, r.code, r.body)
		}
	}
	cancel()
	if err := <-gone; err == nil {
		t.Error("a client that gave up was answered, while no filter was read")
	}
	<-f.reading
	asking.Wait()
	serverstest.Await(t, "nothing is read any more", func() bool { return len(f.reading) == 0 })
	if f.known.Len() > 3 { // known and same, and gone if its client was late to give up
		t.Errorf("%d filters are known", f.known.Len())
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
	}{
		{either(mostComparisons, "x"), 200, ""}, // nothing but an empty list
		{either(mostComparisons, "y"), 200, `"ID":"y7"`},
		{either(mostComparisons+1, "x"), 400, "has 513 comparisons; at most 512 fit"},
		{strings.Repeat(" ", longestFilter) + "Service.ID==abcd", 400, "16400 bytes long; at most 16384 fit"},
		{strings.Repeat("(", 20) + "a==b" + strings.Repeat(")", 20), 400, "fewer parentheses"},
		{"nope == 1", 500, "Selector"},
		{")(", 500, "Failed to create"},
	} {
		for range 2 { // also once it is known
			r := i.do(t, "checkout", "GET", filterPath(c.filter), "")
			if r.code != c.code || !strings.Contains(r.body, c.text) || c.text == "" && r.body != "[]" {
				t.Errorf("%.40s of %d bytes: %d %.200s", c.filter, len(c.filter), r.code, r.body)
			}
		}
	}
}

// TestOnlySoManyFiltersAreKept.
func TestOnlySoManyFiltersAreKept(t *testing.T) {
	f := newFilters()
	for n := range 2 * mostPrepared {
		f.known.Add(fmt.Sprint(n), &prepared{})
	}
	if f.known.Len() != mostPrepared || !f.known.Contains(fmt.Sprint(2*mostPrepared-1)) {
		t.Errorf("%d are kept", f.known.Len())
	}
}
