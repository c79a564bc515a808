package faults

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// figures are what became of the calls around one fault.
type figures struct {
	fault    string
	calls    int
	failed   int
	lost     int           // failed calls that an instance had all the same: the answer did not arrive
	repeated int           // how often an instance had a call again: daprd tries some again by itself
	gap      time.Duration // the longest that one caller was without an answer
	still    time.Duration // the same at the same time, of callers that the fault does not concern
	limit    string
	notes    string
}

// report collects the figures of all tests.
type report struct {
	mu  sync.Mutex
	all []figures
}

var measured report

func (r *report) add(f figures) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, f)
}

// table is the figures as Markdown; nothing where there are none.
func (r *report) table() string {
	if len(r.all) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString("\n| fault | calls | failed | answers lost | repeated | longest gap | others' gap | limit | |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, f := range r.all {
		fmt.Fprintf(&text, "| %s | %d | %d | %d | %d | %s | %s | %s | %s |\n", f.fault, f.calls, f.failed, f.lost, f.repeated, round(f.gap), round(f.still), f.limit, f.notes)
	}
	text.WriteString("\n")
	return text.String()
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
