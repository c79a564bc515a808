package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// printServers prints what was measured, and in brackets how many times that of the
// reference it is.
func printServers(to io.Writer, names int, servers []*server) {
	var base *server
	for _, s := range servers {
		if s.name == reference {
			base = s
		}
	}
	table := measure.Table{
		Title: fmt.Sprintf("%d names, medians of %d rounds by turns; in brackets: times that of %s", names, len(servers[0].rate), reference),
		Head:  []string{"", "queries/s", "CPU µs/query", "at 10,000/s", "p50 µs", "p99 µs", "best CPU µs", "best at 10,000/s", "best p99 µs", "RSS MiB", "lost"},
	}
	for _, s := range servers {
		cell := func(format string, of func(*server) float64) string {
			value := fmt.Sprintf(format, of(s))
			if base == nil || of(base) == 0 {
				return value
			}
			return fmt.Sprintf("%s (%.2f)", value, of(s)/of(base))
		}
		median := func(of func(*server) []float64) func(*server) float64 {
			return func(s *server) float64 { return measure.Median(slices.Clone(of(s))) }
		}
		best := func(of func(*server) []float64) func(*server) float64 {
			return func(s *server) float64 { return slices.Min(of(s)) }
		}
		table.Add(s.name,
			cell("%.0f", median(func(s *server) []float64 { return s.rate })),
			cell("%.2f", median(func(s *server) []float64 { return s.cpu })),
			cell("%.1f", median(func(s *server) []float64 { return s.quietCPU })),
			cell("%.0f", median(func(s *server) []float64 { return s.p50 })),
			cell("%.0f", median(func(s *server) []float64 { return s.p99 })),
			cell("%.2f", best(func(s *server) []float64 { return s.cpu })),
			cell("%.1f", best(func(s *server) []float64 { return s.quietCPU })),
			cell("%.0f", best(func(s *server) []float64 { return s.p99 })),
			cell("%.1f", func(s *server) float64 { return float64(s.resident) / (1 << 20) }),
			fmt.Sprint(s.lost))
	}
	table.Print(to)
}
