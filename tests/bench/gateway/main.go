// Command gateway compares what it costs to pass connections on: the gateway of
// Isthmus beside HAProxy, nginx, sniproxy and a plain proxy in Go, all in one run.
//
// It measures CPU time of the proxies, not rates: the load generator and the apps
// behind run on the same machine and would blur rates. Rounds are interleaved and
// the table shows medians. Everything listens on loopback.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/isthmus-mesh/isthmus/tests/bench/contender"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// load is how much of everything one round does.
type load struct {
	rounds      int
	connections int
	requests    int
	bytes       int64
	idle        int
}

func main() {
	var l load
	only := flag.String("only", "", "measure only what has one of these, with commas between them, in its name")
	flag.IntVar(&l.rounds, "rounds", 3, "rounds; medians are shown")
	flag.IntVar(&l.connections, "connections", 1000, "new TLS connections in a round, and as many without an exchange; 0 leaves a part out")
	flag.IntVar(&l.requests, "requests", 15000, "requests of 1 KiB in a round")
	flag.Int64Var(&l.bytes, "bytes", 1<<30, "bytes in bulk in a round")
	flag.IntVar(&l.idle, "idle", 20000, "idle connections, as far as the limit of open files goes")
	measure.Program{
		Short: map[string]string{"rounds": "1", "connections": "50", "requests": "200", "bytes": "10000000", "idle": "200"},
		Roles: map[string]measure.Role{"apps": runApps, "gateway": runGateway, "plain": runPlain},
		Run: func(ctx context.Context) error {
			return measure.WithDirectory(func(dir string) error { return compare(ctx, dir, l, *only) })
		},
	}.Main()
}

// compare starts everything, measures it and prints the table.
func compare(ctx context.Context, dir string, l load, only string) (err error) {
	s := &stage{dir: dir, only: only, self: filepath.Join(dir, "gateway")}
	if err := copySelf(s.self); err != nil {
		return err
	}
	behind, err := measure.StartChild(ctx, "apps", nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, behind.Stop()) }()
	if s.apps, err = measure.Ask[apps](behind, "Apps", nil); err != nil {
		return err
	}
	candidates, err := s.start(ctx)
	defer func() { err = errors.Join(err, stop(candidates)) }()
	if err != nil {
		return err
	}
	err = measure.Turns(ctx, l.rounds, candidates, func(ctx context.Context, c *candidate) error { return c.measure(ctx, l) })
	if err != nil {
		return err
	}
	if err := s.idle(ctx, candidates, l.idle); err != nil {
		return err
	}
	show(candidates, l)
	return nil
}

// idle measures idle connections with new processes: what those before have left in
// the memory of a Go program would be used again, and cost nothing.
func (s *stage) idle(ctx context.Context, candidates []*candidate, n int) (err error) {
	if n == 0 {
		return nil
	}
	fresh, err := s.start(ctx)
	defer func() { err = errors.Join(err, stop(fresh)) }()
	for i, c := range fresh {
		if err := c.measureIdle(ctx, n); err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		candidates[i].idleKiB, candidates[i].idleFiles, candidates[i].idleCount = c.idleKiB, c.idleFiles, c.idleCount
	}
	return err
}

func stop(candidates []*candidate) (err error) {
	for _, c := range candidates {
		err = errors.Join(err, contender.StopAll([]*contender.Running{c.Running}))
	}
	return err
}

// show prints what was measured, and in brackets how many times that of the first candidate
// it is.
func show(all []*candidate, l load) {
	if len(all) == 0 {
		return
	}
	title := fmt.Sprintf("Medians of %d rounds by turns; in brackets: times that of %s", l.rounds, all[0].Name)
	measure.Compare(title, all, all[0], func(c *candidate) string { return c.Name }, []measure.Column[*candidate]{
		{Head: "CPU µs per new connection", Format: "%.0f", Of: func(c *candidate) float64 { return c.connection.Median() }},
		{Head: "without an exchange", Format: "%.0f", Of: func(c *candidate) float64 { return c.bare.Median() }},
		{Head: "CPU µs per 1 KiB request", Format: "%.1f", Of: func(c *candidate) float64 { return c.request.Median() }},
		{Head: "CPU s per GiB", Format: "%.2f", Of: func(c *candidate) float64 { return c.gib.Median() }},
		{Head: "KiB per idle connection", Format: "%.1f", Of: func(c *candidate) float64 { return c.idleKiB }},
		{Head: "descriptors", Format: "%.1f", Of: func(c *candidate) float64 { return c.idleFiles }, NoTimes: true},
		{Head: "idle connections", Format: "%.0f", Of: func(c *candidate) float64 { return float64(c.idleCount) }, NoTimes: true},
	}).Print(os.Stdout)
}

// copySelf copies this program to where every user may execute it.
func copySelf(to string) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
