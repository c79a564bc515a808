package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// changeEvery is how often somebody changes a selection, which each open page shows.
const changeEvery = 500 * time.Millisecond

// round is what others of the service see for a while.
type round struct {
	browsers        int
	changes, lookup []time.Duration
	used            time.Duration // CPU
	resident        uint64        // bytes at its end
	shown           int64         // pages that browsers have fetched
}

// openPages shows what browsers that stay open cost others, with and without them by turns.
func (w *world) openPages(ctx context.Context, browsers, rounds int, lasts time.Duration) error {
	var all [2][]round
	for i := range rounds {
		for k, n := range []int{0, browsers} {
			measure.Progress("round %d of %d with %d browsers for %s", i+1, rounds, n, lasts)
			r, err := w.round(ctx, n, lasts)
			if err != nil {
				return err
			}
			all[k] = append(all[k], r)
		}
	}
	table := measure.Table{
		Title: "Browsers that stay open, while a selection changes each " + changeEvery.String(),
		Head:  []string{"browsers", "change followed p50 ms", "p99 ms", "lookup by gRPC p50 ms", "p99 ms", "CPU s/s", "pages/s", "RSS MiB, each round"},
	}
	for _, of := range all {
		var changes, lookups []time.Duration
		var used time.Duration
		var shown int64
		var memory []string
		for _, r := range of {
			changes, lookups = append(changes, r.changes...), append(lookups, r.lookup...)
			used, shown, memory = used+r.used, shown+r.shown, append(memory, measure.MiB(r.resident))
		}
		total := lasts.Seconds() * float64(len(of))
		table.Add(fmt.Sprint(of[0].browsers), measure.Millis(measure.Median(changes)), measure.Millis(measure.Quantile(changes, .99)),
			measure.Millis(measure.Median(lookups)), measure.Millis(measure.Quantile(lookups, .99)),
			fmt.Sprintf("%.2f", used.Seconds()/total), fmt.Sprintf("%.1f", float64(shown)/total), strings.Join(memory, ", "))
	}
	table.Print(os.Stdout)
	return nil
}

// round measures for a while.
func (w *world) round(ctx context.Context, browsers int, lasts time.Duration) (r round, err error) {
	inner, cancel := context.WithTimeout(ctx, lasts)
	defer cancel()
	group, inner := errgroup.WithContext(inner)
	var shown atomic.Int64
	for i := range browsers {
		group.Go(func() error { return ended(inner, w.browse(inner, i, &shown)) })
	}
	r.browsers = browsers
	r.used, err = measure.Spent(w.pid(), func() error {
		group.Go(func() error { return ended(inner, w.change(inner, &r.changes)) })
		group.Go(func() error { return ended(inner, w.lookUp(inner, &r.lookup)) })
		return group.Wait()
	})
	r.shown = shown.Load()
	r.resident, _ = measure.Resident(w.pid())
	return r, errors.Join(err, ctx.Err())
}

// ended leaves out an error that only says that the round is over.
func ended(ctx context.Context, err error) error {
	if code := status.Code(err); ctx.Err() != nil || code == codes.DeadlineExceeded || code == codes.Canceled {
		return nil
	}
	return err
}

// change has a selection change again and again. An answer comes once lookups follow.
func (w *world) change(ctx context.Context, took *[]time.Duration) error {
	for i := 0; ; i++ {
		begin := time.Now()
		_, err := v1alpha1.NewObjectsClient(w.conn).Apply(ctx, &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{
			{Json: api.EncodeJSON(w.size.selection(i%w.size.Apps, 1+i%7+int(begin.UnixNano()%90)))},
		}})
		if err != nil {
			return err
		}
		*took = append(*took, time.Since(begin))
		if err := measure.Pause(ctx, time.Until(begin.Add(changeEvery))); err != nil {
			return err
		}
	}
}

// lookUp makes a lookup each 5 ms.
func (w *world) lookUp(ctx context.Context, took *[]time.Duration) error {
	for i := 0; ; i++ {
		begin := time.Now()
		_, err := v1alpha1.NewResolverClient(w.conn).Resolve(ctx, &v1alpha1.ResolveRequest{Caller: wire.App(w.size.app(i)), App: wire.App(w.size.app(i + 1))})
		if err != nil {
			return err
		}
		*took = append(*took, time.Since(begin))
		if err := measure.Pause(ctx, time.Until(begin.Add(5*time.Millisecond))); err != nil {
			return err
		}
	}
}

// browse keeps a page open as live.js does.
func (w *world) browse(ctx context.Context, i int, shown *atomic.Int64) error {
	pages := w.size.pages()
	path := pages[[]int{0, 1, 3, 6, 17}[i%5]].path // those that stay open
	_, mark, err := w.browser.Fetch(ctx, path)
	if err != nil {
		return err
	}
	stream, err := w.browser.Live(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		text, is := strings.CutPrefix(lines.Text(), "data: ")
		var state struct{ Mark string }
		if !is || json.Unmarshal([]byte(text), &state) != nil || state.Mark == mark {
			continue
		}
		_, now, err := w.browser.Fetch(ctx, path)
		if err != nil {
			continue // it keeps what it has, and asks again with the next event
		}
		mark = now
		shown.Add(1)
	}
	return ctx.Err()
}
