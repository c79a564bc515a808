package main

import (
	"fmt"
	"io"
	"strings"
)

// accepted is an advisory that is known to reach a module and stays, with the reason.
type accepted struct {
	dir, id, reason string
	needed          bool // it was found
}

// parseAccepted reads lines of a module's folder, an advisory and the reason.
func parseAccepted(text string) (all []*accepted, err error) {
	n := 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		if len(fields) < 3 || !advisoryID.MatchString(fields[1]) {
			return nil, fmt.Errorf("%s:%d: want a module's folder, an advisory such as GO-2026-6061, and a reason", acceptedFile, n)
		}
		all = append(all, &accepted{dir: fields[0], id: fields[1], reason: strings.Join(fields[2:], " ")})
	}
	return all, nil
}

// judge writes what was found in a module, and returns how many findings fail the check.
// Those of Go itself do not: which Go runs is not ours to say.
func judge(out io.Writer, dir string, found []finding, allowed []*accepted) (failed int) {
	for _, f := range found {
		if f.trace[0].Module == stdlib {
			fmt.Fprintf(out, "%s: warning: build with a newer Go: %s\n", dir, f)
			continue
		}
		if a := allows(allowed, dir, f.id); a != nil {
			a.needed = true
			fmt.Fprintf(out, "%s: accepted: %s in %s %s: %s\n", dir, f.id, f.trace[0].Module, f.trace[0].Version, a.reason)
			continue
		}
		failed++
		fmt.Fprintf(out, "%s: %s\n", dir, f)
	}
	if failed == 0 {
		fmt.Fprintf(out, "%s: no other known vulnerability reaches it\n", dir)
	}
	return failed
}

func allows(allowed []*accepted, dir, id string) *accepted {
	for _, a := range allowed {
		if a.dir == dir && a.id == id {
			return a
		}
	}
	return nil
}

// unneeded returns how many advisories are accepted and not found.
func unneeded(out io.Writer, allowed []*accepted) (failed int) {
	for _, a := range allowed {
		if !a.needed {
			failed++
			fmt.Fprintf(out, "%s: %s is accepted and no longer found; remove its line from tools/%s\n", a.dir, a.id, acceptedFile)
		}
	}
	return failed
}
