// Package measure is the harness of the benchmark programs: their flags and processes,
// rounds by turns, CPU time and memory of processes, quantiles, and tables to print.
package measure

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Quantile is the smallest value that a share q of the values, from 0 to 1, does not
// exceed. It is the zero value where there are none.
func Quantile[T int | int64 | float64 | time.Duration](values []T, q float64) (at T) {
	if len(values) == 0 {
		return at
	}
	values = slices.Sorted(slices.Values(values))
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// Median is the quantile of one half.
func Median[T int | int64 | float64 | time.Duration](values []T) T { return Quantile(values, .5) }

// Memory is what a process holds.
type Memory struct {
	Heap uint64 // bytes of live objects on Go's heap
	RSS  uint64 // bytes resident, as the kernel counts them; 0 where it can't tell
	Peak uint64 // the most that was resident so far
}

// Settled is this process's memory after a collection, with what Go has kept for
// later given back. Before that it reads how much was resident as things stood.
func Settled() Memory {
	_, peak := Resident(os.Getpid())
	debug.FreeOSMemory()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	rss, _ := Resident(os.Getpid())
	return Memory{Heap: stats.HeapAlloc, RSS: rss, Peak: peak}
}

// Resident is how much memory of a process is resident, and the most that was.
func Resident(pid int) (now, peak uint64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			continue
		}
		kib, _ := strconv.ParseUint(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib << 10
		case "VmHWM:":
			peak = kib << 10
		}
	}
	return now, peak
}

// MiB is a number of bytes for people.
func MiB(bytes uint64) string { return fmt.Sprintf("%.1f", float64(bytes)/(1<<20)) }

// Micros is a duration in microseconds for people.
func Micros(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d)/1e3) }

// Millis is a duration in milliseconds for people.
func Millis(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/1e6) }

// Table is rows of cells below a heading. The first column stands to the left, the
// others to the right.
type Table struct {
	Title string
	Head  []string
	rows  [][]string
}

// Add puts a row at the end.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the table as Markdown, which reads well in a terminal too.
func (t *Table) Print(to io.Writer) {
	width := make([]int, len(t.Head))
	rule := make([]string, len(t.Head))
	for _, row := range append([][]string{t.Head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for i := range rule {
		rule[i] = strings.Repeat("-", width[i]-1) + ":"
	}
	rule[0] = strings.Repeat("-", width[0])
	fmt.Fprintf(to, "\n%s\n\n", t.Title)
	for _, row := range append([][]string{t.Head, rule}, t.rows...) {
		line := fmt.Sprintf("| %-*s", width[0], row[0])
		for i, cell := range row[1:] {
			line += fmt.Sprintf(" | %*s", width[i+1], cell)
		}
		fmt.Fprintln(to, line+" |")
	}
	fmt.Fprintln(to)
}

// Verdict says whether a measured value is within an aim.
func Verdict(ok bool) string {
	if ok {
		return "met"
	}
	return "MISSED"
}
