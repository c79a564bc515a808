package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/demo"
)

func newDemo() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start two clusters on this machine and show what Isthmus does",
		Long: `Start two clusters on loopback, each with its Sentry, resolver service and sidecars, and
go through what Isthmus does step by step, with the command behind each step.

It stays up until Ctrl-C and leaves nothing behind. It runs the daprd, sentry and
placement that "make deps-demo" builds: those in bin/ of a clone, those beside isthmus, or those
that ISTHMUS_DAPRD, ISTHMUS_SENTRY and ISTHMUS_PLACEMENT name.`,
		Example: `  isthmus demo
  isthmus demo --once`,
		Args: arguments(cobra.NoArgs),
	}
	once := cmd.Flags().Bool("once", false, "exit after the last step; 0 only if every step did what it says")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP) // the terminal was closed
		defer stop()
		return demo.Run(ctx, demo.Options{Out: cmd.OutOrStdout(), Color: isTerminal(os.Stdout), Once: *once})
	}
	return cmd
}

// isTerminal tells whether a person reads what is written to a file.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
