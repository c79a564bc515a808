package measure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"syscall"
	"time"
)

// Program is a benchmark. Its flags are defined before Main is called.
type Program struct {
	Run   func(context.Context) error
	Roles map[string]Role   // what else the program can be, in a process of its own
	Short map[string]string // flags of a run with -short, where they are not given
}

// profiles is a directory for the profiles of every role's process.
var profiles string

// Main runs the program and ends the process. An interrupt ends the context.
func (p Program) Main() {
	role := flag.String("role", "", "internal: be a part of what is measured")
	argument := flag.String("argument", "", "internal: what the role needs to know, as JSON")
	short := flag.Bool("short", false, "measure as little as shows that everything works")
	limit := flag.Duration("limit", 15*time.Minute, "give up after this time")
	flag.StringVar(&profiles, "profile", "", "directory for CPU and heap profiles of the processes that are measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, *limit)
	var err error
	switch {
	case *role == "" && *short:
		err = p.shorten()
		fallthrough
	case *role == "":
		if err == nil {
			err = p.Run(ctx)
		}
	case p.Roles[*role] == nil:
		err = fmt.Errorf("no role %q", *role)
	default:
		err = profiled(*role, func() error { return p.Roles[*role](ctx, []byte(*argument)) })
	}
	cancel()
	stop()
	if err != nil {
		Progress("%v", err)
		os.Exit(1)
	}
}

// shorten sets the flags of a short run.
func (p Program) shorten() error {
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range p.Short {
		if given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			return err
		}
	}
	return nil
}

// Progress tells people on standard error how far the program is.
func Progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, filepath.Base(os.Args[0])+": "+format+"\n", args...)
}

// WithDirectory calls do with a new directory, which every user may read, and removes it.
func WithDirectory(do func(dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "isthmus-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	return do(dir)
}

// Patience is how long anything may take that is waited for.
const Patience = time.Minute

// Await calls try, with pauses in between, until it returns no error or Patience is over.
func Await(ctx context.Context, what string, pause time.Duration, try func() error) error {
	for began := time.Now(); ; {
		err := try()
		if err == nil {
			return nil
		}
		if time.Since(began) > Patience {
			return fmt.Errorf("%s: not within %s: %w", what, Patience, err)
		}
		if cause := Pause(ctx, pause); cause != nil {
			return fmt.Errorf("%s: %w: %w", what, cause, err)
		}
	}
}

// Pause waits for a time, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Profiles is the directory of -profile; empty without one.
func Profiles() string { return profiles }

// profiled calls do, and leaves profiles of it where the program was told to.
func profiled(role string, do func() error) (err error) {
	if profiles == "" {
		return do()
	}
	base := filepath.Join(profiles, fmt.Sprintf("%s-%s-%d.", filepath.Base(os.Args[0]), role, os.Getpid()))
	cpu, err := os.Create(base + "cpu.pprof")
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return err
	}
	err = do()
	pprof.StopCPUProfile()
	heap, failed := os.Create(base + "heap.pprof")
	if failed != nil {
		return errors.Join(err, failed, cpu.Close())
	}
	return errors.Join(err, cpu.Close(), pprof.WriteHeapProfile(heap), heap.Close())
}
