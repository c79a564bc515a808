// Mutants puts faults into the code, one at a time, and lets the simulation look for each. A fault
// that it does not find shows a property that nobody has stated.
//
//	go run ./tests/mutants                       # all; make mutants
//	go run ./tests/mutants -only guard -limit 1m # those with the word in their name
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// limit is how long the simulation looks for a fault, in time of a processor.
const limit = 5 * time.Minute

func main() {
	only := flag.String("only", "", "run mutants with this text in their names")
	most := flag.Duration("limit", limit, "how long the simulation looks for each, in time of a processor")
	flag.Parse()
	if err := run(*only, *most); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string, most time.Duration) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Println("| fault | found by | after |\n| --- | --- | --- |")
	missed := 0
	for _, m := range mutants {
		if !strings.Contains(m.name, only) {
			continue
		}
		by, took, err := m.find(dir, most)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if by == "" {
			by = "nothing"
			missed++
		}
		fmt.Printf("| %s | %s | %.0f s |\n", m.name, by, took.Seconds())
	}
	if missed > 0 {
		return fmt.Errorf("%d faults were not found", missed)
	}
	return nil
}

// apply returns the text of the file with the fault.
func (m *mutant) apply(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", err
	}
	if n := strings.Count(string(text), m.code); n != 1 {
		return "", fmt.Errorf("%s has the code %d times, and must have it once: %s", m.file, n, m.code)
	}
	return strings.Replace(string(text), m.code, m.fault, 1), nil
}

// find returns what found the fault, and after how much time of a processor; nothing if it was not found.
func (m *mutant) find(dir string, most time.Duration) (by string, took time.Duration, err error) {
	text, err := m.apply(".")
	if err != nil {
		return "", 0, err
	}
	program, changed, overlay := filepath.Join(dir, "simulation.test"), filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", 0, err
	}
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", 0, err
	}
	if err := errors.Join(os.WriteFile(changed, []byte(text), 0o600), os.WriteFile(overlay, replaced, 0o600)); err != nil {
		return "", 0, err
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, "./tests/simulation")
	if out, err := build.CombinedOutput(); err != nil {
		return "", 0, fmt.Errorf("build: %w: %s", err, out)
	}
	for _, args := range [][]string{
		{"-test.run", "TestStores|TestExchanges"},
		{"-test.run", "TestSimulation", "-runs", "1000000", "-first", "-test.failfast", "-test.timeout", "0"},
	} {
		by, spent, err := look(program, args, most-took)
		took += spent
		if err != nil || by != "" || took >= most {
			return by, took, err
		}
	}
	return "", took, nil
}

// look runs a test until it fails, or for so much time of a processor.
func look(program string, args []string, most time.Duration) (by string, took time.Duration, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	test := exec.CommandContext(ctx, program, args...)
	test.Dir = filepath.Join("tests", "simulation")
	var out strings.Builder
	test.Stdout, test.Stderr = &out, &out
	if err := test.Start(); err != nil {
		return "", 0, err
	}
	ended := make(chan struct{})
	go func() {
		for used := time.Duration(0); used < most; used = spent(test.Process.Pid) {
			select {
			case <-ended:
				return
			case <-time.After(time.Second):
			}
		}
		cancel()
	}()
	err = test.Wait()
	close(ended)
	took = test.ProcessState.UserTime() + test.ProcessState.SystemTime()
	if err == nil || ctx.Err() != nil {
		return "", took, nil
	}
	return property(out.String()), took, nil
}

var failure = regexp.MustCompile(`(?m)(?:seed \d+: |^panic: |^fatal error: |_test\.go:\d+: )(.*)`)

// property is the property that a test names as broken.
func property(out string) string {
	found := failure.FindStringSubmatch(out)
	if found == nil {
		return "the test's end"
	}
	kind, what, ok := strings.Cut(found[1], ": ")
	if ok && len(kind) < 12 {
		return "`" + kind + "`: " + clip(what)
	}
	return clip(found[1])
}

func clip(text string) string {
	if len(text) > 110 {
		text = text[:110] + "…"
	}
	return strings.ReplaceAll(text, "|", "/")
}
