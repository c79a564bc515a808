package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// printTable prints what was measured, and in brackets how many times that of the
// first candidate it is.
func printTable(to io.Writer, all []*candidate) {
	if len(all) == 0 {
		return
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	fmt.Fprintln(w, "\tCPU µs per new connection\twithout an exchange\tCPU µs per 1 KiB request\tCPU s per GiB\tKiB per idle connection\tdescriptors\tidle connections\t")
	ours := all[0]
	for _, c := range all {
		cell := func(format string, value, first float64) string {
			return fmt.Sprintf(format+" (%.2f)", value, value/max(first, 1e-9))
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%.1f\t%d\t\n", c.name,
			cell("%.0f", median(c.connection), median(ours.connection)),
			cell("%.0f", median(c.bare), median(ours.bare)),
			cell("%.1f", median(c.request), median(ours.request)),
			cell("%.2f", median(c.gib), median(ours.gib)),
			cell("%.1f", c.idleKiB, ours.idleKiB), c.idleFiles, c.idleCount)
	}
}
