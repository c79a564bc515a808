// Command isthmus-demo starts two clusters on this machine and shows what Isthmus does. It is a
// program of its own, so that isthmus has nothing in it that starts clusters.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/isthmus-mesh/isthmus/tests/demo"
)

const usage = `Start two clusters on loopback, each with its Sentry, resolver service and sidecars, and
go through what Isthmus does step by step, with the command behind each step.

It stays up until Ctrl-C and leaves nothing behind. It runs isthmus, and the daprd, sentry and
placement that "make deps-demo" builds: those in bin/ of a clone, those beside this program, or those
that ISTHMUS_ISTHMUS, ISTHMUS_DAPRD, ISTHMUS_SENTRY and ISTHMUS_PLACEMENT name.

Flags:
`

func main() {
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	once := flag.Bool("once", false, "exit after the last step; 0 only if every step did what it says")
	flag.Parse()
	if flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "isthmus-demo: %q is one argument too many; see isthmus-demo --help\n", flag.Arg(0))
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // the last: the terminal was closed
	context.AfterFunc(ctx, stop)                                                                           // from then on a signal does what it does by default
	if err := demo.Run(ctx, demo.Options{Out: os.Stdout, Color: isTerminal(os.Stdout), Once: *once}); err != nil {
		fmt.Fprintln(os.Stderr, "isthmus-demo:", err)
		os.Exit(1)
	}
}

// isTerminal tells whether a person reads what is written to a file.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
