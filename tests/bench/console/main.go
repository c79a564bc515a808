// Command console shows what pages of the console cost a large service, and what 50 browsers that stay open
// cost whoever else uses it: a change on its way to a sidecar, a lookup, and memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

func main() {
	s := size{}
	var browsers, rounds int
	var lasts time.Duration
	flag.IntVar(&s.Apps, "apps", 2000, "apps, each with five instances")
	flag.IntVar(&s.Callees, "callees", 20, "apps that each of them may call")
	flag.IntVar(&s.Clusters, "clusters", 100, "other clusters, none of which answers")
	flag.IntVar(&browsers, "browsers", 50, "browsers that stay open")
	flag.IntVar(&rounds, "rounds", 3, "with and without browsers, by turns")
	flag.DurationVar(&lasts, "lasts", 20*time.Second, "how long a round takes")
	measure.Program{
		Short: map[string]string{"apps": "100", "clusters": "5", "browsers": "5", "rounds": "1", "lasts": "3s"},
		Run: func(ctx context.Context) error {
			return measure.WithDirectory(func(dir string) (err error) {
				measure.Progress("%d apps, %d callees each, %d clusters", s.Apps, s.Callees, s.Clusters)
				w, err := start(ctx, dir, s)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, w.close()) }()
				if err := w.pages(ctx); err != nil {
					return err
				}
				return w.openPages(ctx, browsers, rounds, lasts)
			})
		},
	}.Main()
}

// page is a page that is measured.
type page struct{ name, path string }

func (s size) pages() []page {
	app := s.app(s.Apps / 2).String()
	return []page{
		{"overview, every cluster away", "/"}, {"map", "/map"}, {"map of a namespace", "/map?namespace=" + s.app(0).Namespace},
		{"map around an app, 2 steps", "/map?steps=2&app=" + app}, {"map of a cluster", "/map?cluster=c1"}, {"apps", "/apps"}, {"app", "/apps/" + app},
		{"explain", "/explain?from=" + app + "&to=" + s.app(s.Apps/2+1).String()}, {"plan", "/plan?object=AppEndpoints/" + app},
		{"plan of a deletion", "/plan?delete=AppEndpoints/" + app}, {"objects", "/objects"}, {"object", "/objects/AppEndpoints/" + app},
		{"trust", "/trust"}, {"links", "/links"}, {"a link", "/links/c1"}, {"calls", "/calls"}, {"sidecars", "/sidecars"}, {"events", "/events"},
	}
}

// pages shows what each page costs the service.
func (w *world) pages(ctx context.Context) error {
	table := measure.Table{Title: "A page of the console", Head: []string{"page", "CPU ms", "time ms", "kB"}}
	idle, err := measure.Spent(w.pid(), func() error { return measure.Pause(ctx, 2*time.Second) })
	if err != nil {
		return err
	}
	worst := time.Duration(0)
	for _, p := range w.size.pages() {
		var used, took []time.Duration
		bytes, _, err := w.browser.Fetch(ctx, p.path)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := measure.Pause(ctx, time.Second); err != nil { // until what that has begun has ended
			return err
		}
		for range 7 {
			begin := time.Now()
			cpu, err := measure.Spent(w.pid(), func() error {
				_, err := w.browser.Get(ctx, p.path)
				return err
			})
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			t := time.Since(begin)
			used, took = append(used, cpu-time.Duration(float64(idle)*t.Seconds()/2)), append(took, t)
		}
		cpu := measure.Median(used)
		worst = max(worst, cpu)
		table.Add(p.name, measure.Millis(cpu), measure.Millis(measure.Median(took)), fmt.Sprint(bytes/1000))
	}
	table.Print(os.Stdout)
	fmt.Printf("\nthe dearest takes %s ms of CPU; at rest the service uses %.1f %% of a processor\n", measure.Millis(worst), 50*idle.Seconds())
	return nil
}
