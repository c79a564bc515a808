// Command dns compares DNS servers: the one in "isthmus serve" beside Knot DNS, NSD and
// CoreDNS, each with the same 10,000 names, asked by dnsperf. Rounds are interleaved. Then
// it shows what 1,000 to 1,000,000 names cost Isthmus: the start, memory, and one change.
//
// Everything is on loopback, with the generator beside the server: compare the CPU time
// of a query first, and the ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options say how much is measured.
type options struct {
	rounds  int
	each    time.Duration // for each of the two loads of a server in a round
	names   int
	only    string
	compare bool
	sizes   bool
}

func main() {
	var o options
	row := flag.Int("row", 0, "internal: measure a zone of so many names and print the result as JSON")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds; medians are shown, and what was best")
	flag.DurationVar(&o.each, "each", 2*time.Second, "how long a load lasts")
	flag.IntVar(&o.names, "names", 10_000, "names in the zone")
	flag.StringVar(&o.only, "only", "", "measure only servers that have this in their name")
	flag.BoolVar(&o.compare, "compare", true, "compare servers")
	flag.BoolVar(&o.sizes, "sizes", true, "show what the size of the zone costs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o, *row); err != nil {
		fmt.Fprintln(os.Stderr, "dns:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, row int) error {
	if row > 0 {
		return child(ctx, row)
	}
	if o.compare {
		if err := compare(ctx, o); err != nil {
			return err
		}
	}
	if o.sizes {
		return sizes(ctx)
	}
	return nil
}

// compare starts every server that is here, measures them by turns and prints the table.
func compare(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "dnsbench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := newStage(dir, o.names)
	if err != nil {
		return err
	}
	servers, err := s.servers(ctx, o.only)
	if err != nil {
		return err
	}
	defer stopAll(servers)
	began := time.Now()
	for round := range o.rounds {
		for i := range servers {
			server := servers[(i+round)%len(servers)]
			if err := s.measure(ctx, server, o.each); err != nil {
				return fmt.Errorf("%s: %w", server.name, err)
			}
		}
		fmt.Fprintf(os.Stderr, "dns: round %d of %d after %s\n", round+1, o.rounds, time.Since(began).Round(time.Second))
	}
	printServers(os.Stdout, o.names, servers)
	return nil
}
