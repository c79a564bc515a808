package harness

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Benchmark is a subcommand. It defines its flags, and says what to do with them.
type Benchmark func(flags *flag.FlagSet) Command

// Command is what a benchmark does.
type Command struct {
	Run   func(*B)
	Short string          // flags of a run with -short, where they are not given
	Roles map[string]Role // what the program can be in a process of its own
}

// Role is a part of what is measured. It returns the methods that the benchmark may ask for:
// functions with at most one argument and one result, which are JSON on their way. Without methods
// the process ends.
type Role func(b *B, argument []byte) map[string]any

// As is a role with an argument.
func As[A any](role func(*B, A) map[string]any) Role {
	return func(b *B, text []byte) map[string]any {
		var argument A
		Check(json.Unmarshal(text, &argument))
		return role(b, argument)
	}
}

// Profiles is the directory of -profile; empty without one.
var Profiles string

// name is the subcommand that runs.
var name string

// Quiet discards what it is told, and Log has errors only.
var (
	Quiet = slog.New(slog.DiscardHandler)
	Log   = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
)

// Progress tells people on standard error how far the program is.
func Progress(format string, args ...any) { fmt.Fprintf(os.Stderr, name+": "+format+"\n", args...) }

// Main runs the benchmark that the first argument names, and ends the process. An interrupt ends
// the benchmark's context.
func Main(benchmarks map[string]Benchmark) {
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	if benchmarks[name] == nil {
		fmt.Fprintln(os.Stderr, "usage: bench NAME [flags]; -h lists the flags of", strings.Join(slices.Sorted(maps.Keys(benchmarks)), ", "))
		os.Exit(2)
	}
	flags := flag.NewFlagSet(name, flag.ExitOnError)
	role := flags.String("role", "", "internal: be a part of what is measured")
	argument := flags.String("argument", "", "internal: what the role needs to know, as JSON")
	short := flags.Bool("short", false, "measure as little as shows that everything works")
	flags.DurationVar(&limit, "limit", 15*time.Minute, "give up after this time")
	flags.StringVar(&Profiles, "profile", "", "directory for CPU and heap profiles of the processes that are measured")
	command := benchmarks[name](flags)
	_ = flags.Parse(os.Args[2:]) // it ends the process
	if *short {
		_ = flags.Parse(append(strings.Fields(command.Short), os.Args[2:]...))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, limit)
	run := command.Run
	if *role != "" {
		run = func(b *B) { b.profiled(*role, func() { b.serve(command.Roles[*role], []byte(*argument)) }) }
	}
	err := Try(func() { (&B{Context: ctx}).Scope(run) })
	cancel()
	stop()
	if err != nil {
		Progress("%v", err)
		os.Exit(1)
	}
}

// question is asked by the benchmark, and answer the role's.
type (
	question struct {
		Method   string
		Argument json.RawMessage
	}
	answer[T any] struct {
		Result T
		Failed string
	}
)

// serve answers the benchmark's questions until it has no more.
func (b *B) serve(role Role, argument []byte) {
	methods := role(b, argument)
	if methods == nil {
		return
	}
	defer context.AfterFunc(b, func() {
		Progress("%v", context.Cause(b))
		os.Exit(1) // nothing else ends the wait for a question
	})()
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var q question
		if err := in.Decode(&q); errors.Is(err, io.EOF) {
			return
		} else {
			Check(err)
		}
		var a answer[any]
		if err := Try(func() { a.Result = call(methods[q.Method], q.Argument) }); err != nil {
			a.Failed = err.Error()
		}
		Check(out.Encode(a))
	}
}

func call(method any, argument json.RawMessage) any {
	f, in := reflect.ValueOf(method), []reflect.Value(nil)
	if f.Type().NumIn() > 0 {
		value := reflect.New(f.Type().In(0))
		Check(json.Unmarshal(argument, value.Interface()))
		in = append(in, value.Elem())
	}
	for _, result := range f.Call(in) {
		return result.Interface()
	}
	return nil
}

// Child is a role in a process of its own that answers questions, one at a time.
type Child struct {
	PID       int
	questions *json.Encoder
	answers   *json.Decoder
}

// limit is how long this program and its roles may take.
var limit time.Duration

// Arguments are those that make this program a role.
func Arguments(role string, argument any) []string {
	return []string{name, "-role", role, "-argument", string(Must(json.Marshal(argument))), "-profile", Profiles, "-limit", limit.String()}
}

// Child starts a role in a process of its own, until the end.
func (b *B) Child(role string, argument any) *Child {
	cmd := exec.CommandContext(b, Must(os.Executable()), Arguments(role, argument)...)
	cmd.Stderr = os.Stderr
	in, out := Must(cmd.StdinPipe()), Must(cmd.StdoutPipe())
	Check(cmd.Start())
	b.Cleanup(func() error { return errors.Join(in.Close(), cmd.Wait()) })
	return &Child{cmd.Process.Pid, json.NewEncoder(in), json.NewDecoder(out)}
}

// Ask has a child answer by one of its methods.
func Ask[T any](c *Child, method string, argument any) T {
	Check(c.questions.Encode(map[string]any{"Method": method, "Argument": argument}))
	var a answer[T]
	Check(c.answers.Decode(&a))
	Assert(a.Failed == "", "%s: %s", method, a.Failed)
	return a.Result
}

// profiled leaves profiles of a role where the program was told to.
func (b *B) profiled(role string, do func()) {
	if Profiles == "" {
		do()
		return
	}
	base := filepath.Join(Profiles, fmt.Sprintf("%s-%s-%d.", name, role, os.Getpid()))
	Check(pprof.StartCPUProfile(Must(os.Create(base + "cpu.pprof"))))
	do()
	pprof.StopCPUProfile()
	Check(pprof.WriteHeapProfile(Must(os.Create(base + "heap.pprof"))))
}
