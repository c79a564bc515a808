// Command xds measures how soon clients of xDS see that an instance has changed: Isthmus beside
// go-control-plane's LinearCache, each in a process of its own, with the same clients and the same
// services.
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

// size is one row: clients that follow some services each.
type size struct {
	Services int
	Clients  int
	Each     int // services that a client follows; 0: all
}

func (s size) String() string {
	each := "all"
	if s.Each > 0 {
		each = fmt.Sprint(s.Each)
	}
	return fmt.Sprintf("%d × %d × %s", s.Services, s.Clients, each)
}

// follows are the services that a client follows: its own share, so that each service has about
// as many clients.
func (s size) follows(client int) []int {
	if s.Each == 0 {
		all := make([]int, s.Services)
		for i := range all {
			all[i] = i
		}
		return all
	}
	some := make([]int, s.Each)
	for i := range some {
		some[i] = (client*s.Each + i) % s.Services
	}
	return some
}

// followed is how many services have a client, from the first on.
func (s size) followed() int {
	if s.Each == 0 {
		return s.Services
	}
	return min(s.Services, s.Clients*s.Each)
}

// most is how long the changes of one round may take, but for the first two.
const most = 10 * time.Second

// contenders are the servers, the reference first.
var contenders = []string{"LinearCache", "Isthmus"}

// result is what one server takes.
type result struct {
	last       []time.Duration // from a change to its last client
	cpu        time.Duration   // of the server, for one change
	sent       float64         // bytes, for one change
	heapStream uint64
}

func main() {
	var services, clients, changes, rounds int
	var only string
	flag.IntVar(&services, "services", 10_000, "the most services")
	flag.IntVar(&clients, "clients", 1_000, "the most clients")
	flag.IntVar(&changes, "changes", 50, "changes to measure in a round, which ends after 10 s")
	flag.StringVar(&only, "only", "", "one row, such as \"1000 × 100 × all\"")
	flag.IntVar(&rounds, "rounds", 2, "times that each server is measured, in turns")
	measure.Program{
		Short: map[string]string{"services": "1000", "clients": "10", "changes": "3", "rounds": "1"},
		Roles: map[string]measure.Role{"server": server},
		Run: func(ctx context.Context) error {
			return run(ctx, services, clients, changes, rounds, only)
		},
	}.Main()
}

func run(ctx context.Context, mostServices, mostClients, changes, rounds int, only string) error {
	table := measure.Table{
		Title: "One endpoint changes (services × clients × followed by each), delta, plain text",
		Head:  []string{"size", "server", "last ms p50", "p99", "CPU ms", "bytes sent", "heap KiB a stream", "× p50", "× CPU"},
	}
	for _, services := range []int{1_000, 10_000} {
		for _, clients := range []int{10, 100, 1_000} {
			for _, each := range []int{20, 0} {
				if services > mostServices || clients > mostClients {
					continue
				}
				s := size{services, clients, each}
				if only != "" && only != s.String() {
					continue
				}
				results := map[string]*result{}
				for round := range rounds {
					for _, who := range contenders {
						measure.Progress("%s: %s, round %d of %d", s, who, round+1, rounds)
						if results[who] == nil {
							results[who] = &result{}
						}
						if err := once(ctx, s, who, changes, results[who]); err != nil {
							return fmt.Errorf("%s, %s: %w", s, who, err)
						}
					}
				}
				for _, who := range contenders {
					r, reference := results[who], results[contenders[0]]
					n := time.Duration(len(r.last))
					p50 := func(r *result) time.Duration { return measure.Median(r.last) }
					table.Add(s.String(), who, measure.Millis(p50(r)), measure.Millis(measure.Quantile(r.last, .99)), measure.Millis(r.cpu/n),
						fmt.Sprintf("%.0f", r.sent/float64(n)), fmt.Sprint(r.heapStream>>10),
						fmt.Sprintf("%.2f", float64(p50(r))/float64(p50(reference))), fmt.Sprintf("%.2f", float64(r.cpu)/float64(reference.cpu)))
				}
			}
		}
	}
	table.Print(os.Stdout)
	fmt.Println("The clients run beside the server on the same cores. × is the ratio to LinearCache.")
	return nil
}

// once measures one server in a new process.
func once(ctx context.Context, s size, who string, changes int, r *result) (err error) {
	child, err := measure.StartChild(ctx, "server", argument{who, s.Services})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, child.Stop()) }()
	address, err := measure.Ask[string](child, "Address", measure.None{})
	if err != nil {
		return err
	}
	before, err := measure.Ask[uint64](child, "Heap", measure.None{})
	if err != nil {
		return err
	}
	f, err := connect(ctx, address, s)
	if err != nil {
		return err
	}
	defer f.close()
	after, err := measure.Ask[uint64](child, "Heap", measure.None{})
	if err != nil {
		return err
	}
	r.heapStream = (max(after, before) - before) / uint64(s.Clients)
	began := time.Now()
	for n := range changes + 1 {
		if n > 2 && time.Since(began) > most {
			break
		}
		service := n * 37 % s.followed()
		f.expect(service)
		bytes := f.bytes.Load()
		var took time.Duration
		cpu, err := measure.Spent(child.PID(), func() error {
			began, err := measure.Ask[int64](child, "Change", change{service, n})
			if err != nil {
				return err
			}
			last, err := f.wait(ctx)
			took = last.Sub(time.Unix(0, began))
			return err
		})
		if err != nil {
			return err
		}
		if n > 0 { // the first one warms up
			r.last, r.cpu, r.sent = append(r.last, took), r.cpu+cpu, r.sent+float64(f.bytes.Load()-bytes)
		}
	}
	return nil
}
