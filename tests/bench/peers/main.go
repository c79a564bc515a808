// Command peers measures what a resolver service costs by how many other clusters it
// has links with: 2, 10 and 100 of them, each of which exports 1,000 apps to it, and is
// told of as many. What must follow that number is memory and traffic; what must not is a
// change, and whatever the others export to somebody else.
//
// The service that is measured runs in a process of its own for each column. The other
// clusters are in the program's process: each is a topology, with links and a server of
// its own, a certificate of its own, and connections over TCP on loopback by mTLS. They
// connect directly; gateways would pass the same bytes on.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// plan is what is measured.
type plan struct {
	sizes      []size
	changes    int           // of the others
	own        int           // changes of the service's own apps
	reconnects int           // of one peer
	rest       time.Duration // how long nothing happens
}

// size is one column.
type size struct {
	Peers  int
	Others int // apps that each peer exports to somebody else, and that change all the time
}

func (s size) String() string {
	if s.Others == 0 {
		return fmt.Sprintf("%d peers", s.Peers)
	}
	return fmt.Sprintf("%d peers, and for others", s.Peers)
}

func main() {
	var p plan
	sizes := flag.String("sizes", "2,10,100,2+10000,10+10000", "columns: peers, and after a + how many apps each exports to others beside")
	flag.IntVar(&exports, "exports", exports, "apps that each cluster exports to each other one; a multiple of 20")
	flag.IntVar(&p.changes, "changes", 500, "changes of other clusters' apps to measure")
	flag.IntVar(&p.own, "own", 60, "changes of the service's own apps to measure")
	flag.IntVar(&p.reconnects, "reconnects", 10, "reconnects to measure")
	flag.DurationVar(&p.rest, "rest", 8*time.Second, "how long to measure at rest")
	measure.Program{
		Short: map[string]string{"sizes": "2,3,2+100", "exports": "100", "changes": "20", "own": "4", "reconnects": "2", "rest": "1s"},
		Roles: map[string]measure.Role{"service": service},
		Run: func(ctx context.Context) (err error) {
			if p.sizes, err = parseSizes(*sizes); err != nil {
				return err
			}
			return run(ctx, p)
		},
	}.Main()
}

func parseSizes(text string) (all []size, err error) {
	for field := range strings.SplitSeq(text, ",") {
		var s size
		format, into := "%d", []any{&s.Peers}
		if strings.Contains(field, "+") {
			format, into = "%d+%d", append(into, &s.Others)
		}
		if _, err := fmt.Sscanf(field, format, into...); err != nil || s.Peers < 1 || s.Peers > 200 || s.Others < 0 || s.Peers*s.Others > 2_000_000 {
			return nil, fmt.Errorf("-sizes: %q: want 1 to 200 peers, or such as 10+10000", field)
		}
		all = append(all, s)
	}
	return all, nil
}

func run(ctx context.Context, p plan) error {
	all := make([]*result, 0, len(p.sizes))
	for _, s := range p.sizes {
		r, err := measureSize(ctx, p, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		all = append(all, r)
	}
	table := measure.Table{
		Title: fmt.Sprintf("A service with links to other clusters, each of which exports %d apps to it, and is told of %d; sent and received are as this service has it", exports, exports),
		Head:  []string{""},
	}
	for _, r := range all {
		table.Head = append(table.Head, r.size.String())
	}
	small, large := line(all)
	if large != nil {
		table.Head = append(table.Head, fmt.Sprintf("%d peers, worked out", many))
	}
	for _, f := range figures() {
		table.Add(f.row(all, small, large)...)
	}
	table.Print(os.Stdout)
	return nil
}
