// Command dns compares DNS servers: the one in "isthmus serve" beside Knot DNS, NSD and
// CoreDNS, each with the same 10,000 names, asked by dnsperf. Rounds are interleaved. Then
// it shows what 1,000 to 1,000,000 names cost Isthmus: the start, memory, and one change.
//
// Everything is on loopback, with the generator beside the server: compare the CPU time
// of a query first, and the ratios.
package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/contender"
	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// options say how much is measured.
type options struct {
	rounds  int
	each    time.Duration // for each of the two loads of a server in a round
	names   int
	only    string
	compare bool
	most    int // names, of the zones whose size is measured
}

func main() {
	var o options
	flag.IntVar(&o.rounds, "rounds", 7, "rounds; medians are shown, and what was best")
	flag.DurationVar(&o.each, "each", 2*time.Second, "how long a load lasts")
	flag.IntVar(&o.names, "names", 10_000, "names in the zone")
	flag.StringVar(&o.only, "only", "", "measure only servers that have this in their name")
	flag.BoolVar(&o.compare, "compare", true, "compare servers")
	flag.IntVar(&o.most, "most", 1_000_000, "show what the size of the zone costs, up to so many names; 0 leaves it out")
	measure.Program{
		Short: map[string]string{"rounds": "1", "each": "1s", "names": "1000", "most": "1000"},
		Roles: map[string]measure.Role{"zone": measure.Result(measureZone)},
		Run: func(ctx context.Context) error {
			if o.compare {
				if err := measure.WithDirectory(func(dir string) error { return compare(ctx, dir, o) }); err != nil {
					return err
				}
			}
			return sizes(ctx, o.most)
		},
	}.Main()
}

// compare starts every server that is here, measures them by turns and prints the table.
func compare(ctx context.Context, dir string, o options) (err error) {
	s, err := newStage(dir, o.names)
	if err != nil {
		return err
	}
	servers, err := s.servers(ctx, o.only)
	defer func() {
		for _, server := range servers {
			err = errors.Join(err, contender.StopAll([]*contender.Running{server.Running}))
		}
	}()
	if err != nil {
		return err
	}
	measured := func(ctx context.Context, of *server) error { return s.measure(ctx, of, o.each) }
	if err := measure.Turns(ctx, o.rounds, servers, measured); err != nil {
		return err
	}
	printServers(os.Stdout, o, servers)
	return nil
}
