package main

import (
	"fmt"
	"io"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
)

// printServers prints what was measured, and in brackets how many times that of the
// reference it is.
func printServers(to io.Writer, o options, servers []*server) {
	var base *server
	for _, s := range servers {
		if s.Name == reference {
			base = s
		}
	}
	title := fmt.Sprintf("%d names, medians of %d rounds by turns; in brackets: times that of %s", o.names, o.rounds, reference)
	measure.Compare(title, servers, base, func(s *server) string { return s.Name }, []measure.Column[*server]{
		{Head: "queries/s", Format: "%.0f", Of: func(s *server) float64 { return s.rate.Median() }},
		{Head: "CPU µs/query", Format: "%.2f", Of: func(s *server) float64 { return s.cpu.Median() }},
		{Head: "at 10,000/s", Format: "%.1f", Of: func(s *server) float64 { return s.quietCPU.Median() }},
		{Head: "p50 µs", Format: "%.0f", Of: func(s *server) float64 { return s.p50.Median() }},
		{Head: "p99 µs", Format: "%.0f", Of: func(s *server) float64 { return s.p99.Median() }},
		{Head: "best CPU µs", Format: "%.2f", Of: func(s *server) float64 { return s.cpu.Best() }},
		{Head: "best at 10,000/s", Format: "%.1f", Of: func(s *server) float64 { return s.quietCPU.Best() }},
		{Head: "best p99 µs", Format: "%.0f", Of: func(s *server) float64 { return s.p99.Best() }},
		{Head: "RSS MiB", Format: "%.1f", Of: func(s *server) float64 { return float64(s.resident) / (1 << 20) }},
		{Head: "lost", Format: "%.0f", Of: func(s *server) float64 { return float64(s.lost) }, NoTimes: true},
	}).Print(to)
}
