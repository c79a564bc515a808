// The command have gets the programs of [programs.All] that are not here: it builds them, takes
// those of this machine or unpacks their packages, all into bin/. It runs at the root of a clone.
//
//	have demo|tests|clusters|releases|PROGRAM...   gets what make demo, test-all, test-install or test-release runs
//	have doctor                           says what is here, what is not, and how long it would take
//
// DAPRD_TAGS chooses Dapr's components (stablecomponents), and ISTHMUS_SERVERS=fetch downloads
// packages of what is installed, too.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	out := flag.String("o", "", "where a program that is built goes; bin/ by default")
	platform := flag.String("for", "", "what it is built for, such as linux/arm64; this machine by default")
	flag.Parse()
	if err := have(ctx, flag.Args(), *out, *platform); err != nil {
		fmt.Fprintln(os.Stderr, "have:", err)
		os.Exit(1)
	}
}

var sets = map[string]programs.Need{"demo": programs.Demo, "tests": programs.Linux, "clusters": programs.Clusters, "releases": programs.Releases}

func have(ctx context.Context, args []string, out, platform string) error {
	if len(args) == 1 && args[0] == "doctor" {
		return doctor()
	}
	var wanted []programs.Program
	for _, arg := range args {
		if need, ok := sets[arg]; ok {
			wanted = append(wanted, programs.For(need, runtime.GOOS)...)
		} else if p, ok := programs.Named(arg); ok {
			wanted = append(wanted, p)
		} else {
			return fmt.Errorf("%q is no program of sandbox/programs, nor one of demo, tests, clusters, releases and doctor", arg)
		}
	}
	if len(wanted) == 0 || out != "" && len(wanted) > 1 {
		return errors.New("name one program, or demo, tests, clusters, releases or doctor")
	}
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	seconds := 0
	for _, p := range wanted {
		if p.Source != nil && !programs.Executable(filepath.Join(bin, p.Name)) {
			seconds += p.Source.Seconds
		}
	}
	if seconds > 60 && out == "" {
		fmt.Printf("The first build takes about %d minutes on 2 processors. Later ones take seconds.\n", (seconds+30)/60)
	}
	var packed []programs.Program
	for _, p := range wanted {
		switch {
		case p.Source != nil:
			err = build(ctx, p, cmp.Or(out, filepath.Join(bin, p.Name)), platform)
		case p.Locked:
			err = locked(ctx, p.Name, bin)
		default:
			packed = append(packed, p)
		}
		if err != nil {
			return err
		}
	}
	if len(packed) > 0 {
		return unpacked(ctx, packed, bin)
	}
	return nil
}

// doctor lists all programs.
func doctor() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROGRAM\tFOR\tFIRST BUILD\tWHERE")
	missing := map[string]int{} // seconds, by the target of make
	for _, p := range programs.For(programs.Clusters, runtime.GOOS) {
		path, err := where(p)
		switch {
		case err != nil && p.Source != nil:
			missing[p.Need.Target()] += p.Source.Seconds
			path = "missing: " + p.Need.Target()
		case err != nil:
			path = "missing: " + p.Remedy()
		}
		cost := "a package"
		if p.Source != nil {
			cost = fmt.Sprintf("%d s", p.Source.Seconds)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", p.Name, p.Need.Runs(), cost, path)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	seconds := 0
	for _, need := range []programs.Need{programs.Demo, programs.Tests, programs.Clusters} { // each has those before it
		if seconds += missing[need.Target()]; seconds > 0 {
			fmt.Printf("What %s lacks takes %s some %s.\n", need.Runs(), need.Target(), time.Duration(seconds)*time.Second)
		}
	}
	return nil
}

func where(p programs.Program) (string, error) {
	if p.Locked {
		path := filepath.Join("bin", p.Name, "node_modules")
		_, err := os.Stat(path)
		return path, err
	}
	return programs.Find(p.Name)
}

// build has Go build a program, and says every few seconds how far that is.
func build(ctx context.Context, p programs.Program, out, platform string) error {
	s := p.Source
	if !s.Ours && current(out, filepath.Join(s.Module, "go.mod"), filepath.Join(s.Module, "go.sum")) {
		return nil
	}
	start := time.Now()
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", s.VersionOf)
	list.Dir, list.Stderr = s.Module, os.Stderr
	version, err := list.Output()
	if err != nil {
		return fmt.Errorf("%s: the version of %s: %w", p.Name, s.VersionOf, err)
	}
	v := strings.TrimPrefix(strings.TrimSpace(string(version)), "v")
	flags := fmt.Sprintf("-s -w -X github.com/dapr/dapr/pkg/buildinfo.version=%[1]s -X k8s.io/component-base/version.gitVersion=v%[1]s", v)
	if p.Name == "daprd" { // others would be linked anew by each commit, and say nothing of it
		release := os.Getenv("ISTHMUS_RELEASE")
		if release == "" {
			described, _ := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty").Output() // a tarball has none
			release = strings.TrimSpace(string(described))
		}
		flags += " -X github.com/isthmus-mesh/isthmus/components/daprd/component.release=" + release
	}
	name := p.Name
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-trimpath", "-buildvcs=false", "-tags", cmp.Or(os.Getenv("DAPRD_TAGS"), "stablecomponents"), "-ldflags", flags, "-o", out, s.Package)
	cmd.Dir, cmd.Env = s.Module, append(os.Environ(), "CGO_ENABLED=0")
	if system, architecture, ok := strings.Cut(platform, "/"); ok {
		cmd.Env = append(cmd.Env, "GOOS="+system, "GOARCH="+architecture)
		name += " for " + platform
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	fmt.Printf("%s: building (%s %s)\n", name, s.VersionOf, v)
	log := &progress{name: name, start: start, said: start}
	cmd.Stderr = log
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: the build failed after %s: %w\n%s", name, elapsed(start), err, strings.Join(log.errors(), "\n"))
	}
	fmt.Printf("%s: ready after %s in %s\n", name, elapsed(start), out)
	now := time.Now() // Go leaves alone what is current
	return os.Chtimes(out, now, now)
}

func elapsed(since time.Time) string { return time.Since(since).Round(time.Second).String() }

// current tells whether a file is there and younger than others.
func current(path string, than ...string) bool {
	at, err := os.Stat(path)
	return err == nil && !slices.ContainsFunc(than, func(other string) bool {
		info, err := os.Stat(other)
		return err != nil || info.ModTime().After(at.ModTime())
	})
}

// progress says what go build -v writes, now and then.
type progress struct {
	name        string
	start, said time.Time
	lines       []string
	rest        string
}

// Write implements [io.Writer].
func (p *progress) Write(text []byte) (int, error) {
	lines := strings.Split(p.rest+string(text), "\n")
	p.lines, p.rest = append(p.lines, lines[:len(lines)-1]...), lines[len(lines)-1]
	if len(p.lines) > 0 && time.Since(p.said) >= 5*time.Second {
		p.said = time.Now()
		compiled := 0
		for _, line := range p.lines {
			if !strings.HasPrefix(line, "go: ") {
				compiled++
			}
		}
		fmt.Printf("%s: %s, %d packages compiled, at: %s\n", p.name, elapsed(p.start), compiled, p.lines[len(p.lines)-1])
	}
	return len(text), nil
}

// errors are the lines that tell of mistakes, or all.
func (p *progress) errors() []string {
	mistakes := slices.DeleteFunc(slices.Clone(p.lines), func(line string) bool { return !strings.ContainsAny(line, ":#") })
	if len(mistakes) > 0 {
		return mistakes
	}
	return p.lines
}

// locked puts the packages of tests/deps/<name>/package-lock.json into bin/<name>.
func locked(ctx context.Context, name, bin string) error {
	from, into := filepath.Join("tests", "deps", name), filepath.Join(bin, name)
	const lock = "package-lock.json"
	wanted, err := os.ReadFile(filepath.Join(from, lock))
	if err != nil {
		return err
	}
	if is, err := os.ReadFile(filepath.Join(into, lock)); err == nil && string(is) == string(wanted) {
		return nil
	}
	anew := into + ".new"
	if err := errors.Join(os.RemoveAll(into), os.RemoveAll(anew), os.MkdirAll(anew, 0o755)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "run", "./npm", filepath.Join("..", from, lock), anew)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "tools", os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: the packages of %s: %w", name, filepath.Join(from, lock), err)
	}
	for _, file := range []string{"package.json", lock} {
		text, err := os.ReadFile(filepath.Join(from, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(anew, file), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return os.Rename(anew, into)
}
