package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// stdlib is the module of Go's own packages, whose version is that of the Go that runs.
const stdlib = "stdlib"

// finding is an advisory that reaches a module, with one way to it.
type finding struct {
	id, summary, fixed string
	trace              []frame // from the vulnerable code to ours
}

// frame is a step of a trace.
type frame struct {
	Module, Version, Package, Function, Receiver string
}

// message is one of those that govulncheck writes; it says more than what is read here.
type message struct {
	OSV *struct {
		ID, Summary string
	}
	Finding *struct {
		OSV          string
		FixedVersion string `json:"fixed_version"`
		Trace        []frame
	}
}

// scan runs govulncheck on the module in a folder, with the database in another.
func scan(db, dir string, t target) ([]finding, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	args := []string{"tool", "govulncheck", "-C", path, "-db", "file://" + filepath.ToSlash(db), "-format", "json", "-scan", t.level}
	if t.tags != "" {
		args = append(args, "-tags", t.tags)
	}
	cmd := exec.Command("go", append(args, t.packages)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = append(os.Environ(), "GOWORK=off")
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("govulncheck: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return findings(bytes.NewReader(out), t.level)
}

// findings reads what govulncheck writes. Of each advisory it keeps the shortest trace.
func findings(from io.Reader, level string) ([]finding, error) {
	summaries, found := map[string]string{}, map[string]finding{}
	for decoder := json.NewDecoder(from); ; {
		var m message
		if err := decoder.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("govulncheck's answer: %w", err)
		}
		if m.OSV != nil {
			summaries[m.OSV.ID] = m.OSV.Summary
		}
		if m.Finding == nil || !reaches(m.Finding.Trace, level) {
			continue
		}
		f := finding{id: m.Finding.OSV, fixed: m.Finding.FixedVersion, trace: m.Finding.Trace}
		if before, there := found[f.id]; !there || len(f.trace) < len(before.trace) {
			found[f.id] = f
		}
	}
	var all []finding
	for _, id := range slices.Sorted(maps.Keys(found)) {
		f := found[id]
		f.summary = summaries[id]
		all = append(all, f)
	}
	return all, nil
}

// reaches tells whether a finding is of the level. govulncheck also tells the weaker ones: the
// module is required, the package is linked.
func reaches(trace []frame, level string) bool {
	if len(trace) == 0 {
		return false
	}
	return level == "package" && trace[0].Package != "" || trace[0].Function != ""
}

// String is the finding with the calls that lead to it, ours first.
func (f finding) String() string {
	at := f.trace[0]
	fixed := "no version mends it"
	if f.fixed != "" {
		fixed = "mended in " + f.fixed
	}
	text := fmt.Sprintf("%s: %s\n    in %s %s, %s\n    ", f.id, f.summary, at.Module, at.Version, fixed)
	if at.Function == "" {
		return text + "links " + at.Package
	}
	var steps []string
	for _, step := range slices.Backward(f.trace) {
		name := step.Function
		if step.Receiver != "" {
			name = step.Receiver + "." + name
		}
		steps = append(steps, step.Package+"."+name)
	}
	if len(steps) > 6 {
		steps = slices.Concat(steps[:3], []string{"…"}, steps[len(steps)-2:])
	}
	return text + "called by " + strings.Join(steps, " → ")
}
