// Mutants puts faults into the code, each behind a switch, and lets the simulation look for one after the
// other. A fault that it does not find shows a property that nobody has stated.
//
//	go run ./tests/mutants                       # all; make mutants
//	go run ./tests/mutants -only guard -limit 1m # those with the word in their name
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// limit is how long the simulation looks for a fault, in time of a processor.
const limit = 5 * time.Minute

func main() {
	only := flag.String("only", "", "run mutants with this text in their names")
	most := flag.Duration("limit", limit, "how long the simulation looks for each, in time of a processor")
	parallel := flag.Int("parallel", max(1, runtime.NumCPU()/2), "how many at a time")
	flag.Parse()
	if err := run(*only, *most, *parallel); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(only string, most time.Duration, parallel int) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err := build(dir)
	if err != nil {
		return err
	}
	fmt.Println("| fault | found by | after |\n| --- | --- | --- |")
	var group errgroup.Group
	group.SetLimit(parallel)
	var missed atomic.Int32
	for _, m := range mutants {
		if !strings.Contains(m.name, only) {
			continue
		}
		group.Go(func() error {
			by, took, err := m.find(program, most)
			if err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			if by == "" {
				by = "nothing"
				missed.Add(1)
			}
			fmt.Printf("| %s | %s | %.0f s |\n", m.name, by, took.Seconds())
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if n := missed.Load(); n > 0 {
		return fmt.Errorf("%d faults were not found", n)
	}
	return nil
}

// apply puts the fault into the text of its file, behind a switch.
func (m *mutant) apply(text string) (string, error) {
	if n := strings.Count(text, m.code); n != 1 {
		return "", fmt.Errorf("%s has the code %d times, and must have it once: %s", m.file, n, m.code)
	}
	name := strconv.Quote(m.name)
	both := m.code
	for _, line := range [][2]string{{"if ", " {"}, {"case ", ":"}, {"return ", ""}, {"", ""}} {
		before, after := line[0], line[1]
		if strings.HasPrefix(m.code, "\t") {
			both = "if mutant.On(" + name + ") {\n" + m.fault + "} else {\n" + m.code + "}\n"
			break
		}
		if strings.HasPrefix(m.code, before) && strings.HasSuffix(m.code, after) {
			within := func(text string) string { return strings.TrimSuffix(strings.TrimPrefix(text, before), after) }
			both = before + "mutant.Pick(" + name + ", " + within(m.code) + ", " + within(m.fault) + ")" + after
			break
		}
	}
	text = strings.Replace(text, m.code, both, 1)
	if !strings.Contains(text, importMutant) {
		text = packageClause.ReplaceAllString(text, "$0"+importMutant)
	}
	return text, nil
}

const importMutant = "\nimport \"github.com/isthmus-mesh/isthmus/internal/mutant\"\n"

var packageClause = regexp.MustCompile(`(?m)^package \w+\n`)

// switches are the package that the changed files import.
const switches = `package mutant

import (
	"os"
	"strings"
)

var on = os.Getenv("ISTHMUS_MUTANT")

func On(name string) bool { return on == name }

func Pick[T any](name string, right, wrong T) T {
	if on == name {
		return wrong
	}
	return right
}

func Replace(text, old, new string) string { return strings.ReplaceAll(text, old, new) }
`

// build builds the simulation with every fault behind its switch.
func build(dir string) (program string, err error) {
	texts := map[string]string{"internal/mutant/mutant.go": switches}
	for _, m := range mutants {
		if texts[m.file] == "" {
			text, err := os.ReadFile(m.file)
			if err != nil {
				return "", err
			}
			texts[m.file] = string(text)
		}
		if texts[m.file], err = m.apply(texts[m.file]); err != nil {
			return "", fmt.Errorf("%s: %w", m.name, err)
		}
	}
	replace := map[string]string{}
	for file, text := range texts {
		original, err := filepath.Abs(file)
		if err != nil {
			return "", err
		}
		replace[original] = filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(replace[original], []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	at := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(at, overlay, 0o600); err != nil {
		return "", err
	}
	program = filepath.Join(dir, "simulation.test")
	if out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", at, "-o", program, "./tests/simulation").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return program, nil
}

// find returns what found the fault, and after how much time of a processor; nothing if it was not found.
func (m *mutant) find(program string, most time.Duration) (by string, took time.Duration, err error) {
	for _, args := range [][]string{
		{"-test.run", "TestExchanges"},
		{"-test.run", "TestSimulation", "-runs", "1000000", "-first", "-test.failfast", "-test.timeout", "0"},
	} {
		by, spent, err := look(m.name, program, args, most-took)
		took += spent
		if err != nil || by != "" || took >= most {
			return by, took, err
		}
	}
	return "", took, nil
}

// look runs a test until it fails, or for so much time of a processor.
func look(name, program string, args []string, most time.Duration) (by string, took time.Duration, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	test := exec.CommandContext(ctx, program, args...)
	test.Dir = filepath.Join("tests", "simulation")
	test.Env = append(os.Environ(), "ISTHMUS_MUTANT="+name)
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

// failures are how tests say what is wrong, the better one first.
var failures = []*regexp.Regexp{regexp.MustCompile(`seed \d+: (.*)`), regexp.MustCompile(`(?m)(?:^panic: |^fatal error: |_test\.go:\d+: )(.*)`)}

// property is the property that a test names as broken.
func property(out string) string {
	for _, f := range failures {
		found := f.FindStringSubmatch(out)
		if found == nil {
			continue
		}
		if kind, what, ok := strings.Cut(found[1], ": "); ok && !strings.ContainsAny(kind, " -") {
			return "`" + kind + "`: " + clip(what)
		}
		return clip(found[1])
	}
	return "the test's end"
}

func clip(text string) string {
	if len(text) > 110 {
		text = text[:110] + "…"
	}
	return strings.ReplaceAll(text, "|", "/")
}
