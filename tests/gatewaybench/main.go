// Command gatewaybench compares what it costs to pass connections on: the gateway of
// Isthmus beside HAProxy, nginx, sniproxy and a plain proxy in Go, all in one run.
//
// It measures CPU time of the proxies, not rates: the load generator and the apps
// behind run on the same machine and would blur rates. Rounds are interleaved and
// the table shows medians. Everything listens on loopback.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
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
	log.SetFlags(0)
	log.SetPrefix("gatewaybench: ")
	var l load
	var role roleFlags
	only := flag.String("only", "", "measure only what has one of these, with commas between them, in its name")
	flag.IntVar(&l.rounds, "rounds", 3, "rounds; medians are shown")
	flag.IntVar(&l.connections, "connections", 1000, "new TLS connections in a round, and as many without an exchange; 0 leaves a part out")
	flag.IntVar(&l.requests, "requests", 15000, "requests of 1 KiB in a round")
	flag.Int64Var(&l.bytes, "bytes", 1<<30, "bytes in bulk in a round")
	flag.IntVar(&l.idle, "idle", 20000, "idle connections, as far as the limit of open files goes")
	flag.StringVar(&role.name, "role", "", "internal: be a proxy or the apps behind it")
	flag.StringVar(&role.echo, "echo", "", "internal: address of the app that speaks TLS")
	flag.StringVar(&role.bulk, "bulk", "", "internal: address of the app that sends bulk")
	flag.StringVar(&role.profile, "profile", "", "internal: file for a CPU profile")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if role.name != "" {
		err = role.run(ctx)
	} else {
		runtime.LockOSThread() // children end with the thread that started them
		err = compare(ctx, l, *only)
	}
	if err != nil {
		log.Print(err)
		stop()
		os.Exit(1)
	}
}

// idle measures idle connections with new processes: what those before have left in
// the memory of a Go program would be used again, and cost nothing.
func (s *stage) idle(ctx context.Context, candidates []*candidate, only string, n int) error {
	fresh, err := s.candidates(only)
	if err != nil {
		return err
	}
	for i, c := range fresh {
		if err := c.measureIdle(ctx, n); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		candidates[i].idleKiB, candidates[i].idleFiles, candidates[i].idleCount = c.idleKiB, c.idleFiles, c.idleCount
	}
	return nil
}

// compare starts everything, measures it and prints the table.
func compare(ctx context.Context, l load, only string) error {
	dir, err := os.MkdirTemp("", "gatewaybench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := newStage(dir)
	if err != nil {
		return err
	}
	defer s.stop()
	candidates, err := s.candidates(only)
	if err != nil {
		return err
	}
	started := time.Now()
	for round := range l.rounds {
		for i := range candidates {
			c := candidates[(i+round)%len(candidates)]
			if err := c.measure(ctx, l); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d of %d after %s\n", round+1, l.rounds, time.Since(started).Round(time.Second))
	}
	if l.idle > 0 {
		if err := s.idle(ctx, candidates, only, l.idle); err != nil {
			return err
		}
	}
	fmt.Fprintf(os.Stderr, "all after %s\n", time.Since(started).Round(time.Second))
	printTable(os.Stdout, candidates)
	return nil
}
