package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// statusFlags are what a status is to have.
type statusFlags struct {
	details, unhealthy, watch bool
	peer                      string
	interval                  time.Duration
}

func newStatus(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the resolver service is",
		Long: `Show the state of the resolver service: first a line that sums up and all faults, then its store,
identity, DNS, sources of instances, peers, and how much it holds. JSON and YAML always have
all of it.

With --watch it asks again every --interval, until you end it. A terminal shows the newest answer; a
file or a pipe gets one after the other, each with its time. JSON is then one object in a line.

With --exit-code it names each fault on standard error, and then the exit code is 1.`,
		Example: `  isthmus status
  isthmus status --unhealthy
  isthmus status --watch
  isthmus status --peer east
  isthmus status --exit-code -o json >status.json
  isthmus status --server 10.0.0.5:7400 --identity ~/.isthmus -o json`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	var flags statusFlags
	cmd.Flags().BoolVarP(&flags.details, "verbose", "v", false, "all that is known of each peer, and what sources have that can't be used")
	cmd.Flags().BoolVar(&flags.unhealthy, "unhealthy", false, "only what is not well, after the line that sums up")
	cmd.Flags().StringVar(&flags.peer, "peer", "", "all that is known of this peer, and nothing else")
	_ = cmd.RegisterFlagCompletionFunc("peer", c.completePeer)
	cmd.Flags().BoolVarP(&flags.watch, "watch", "w", false, "ask again and again")
	cmd.Flags().DurationVar(&flags.interval, "interval", 2*time.Second, "how long to wait between two answers, with --watch")
	exitCode := cmd.Flags().Bool("exit-code", false, "say what is wrong; the exit code is 1 then")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case flags.watch && *exitCode:
			return misused(fmt.Errorf("--watch and --exit-code exclude each other"))
		case flags.watch && output.lines() != nil:
			return output.lines()
		case flags.watch:
			return watch(cmd, output.Format, flags.interval, func() (func(io.Writer) error, error) {
				answer, err := c.status(cmd)
				return func(w io.Writer) error { return writeStatus(w, output.Format, answer, flags) }, err
			})
		}
		answer, err := c.status(cmd)
		if err != nil {
			return err
		}
		if err := writeStatus(show.ScreenOf(cmd.OutOrStdout()), output.Format, answer, flags); err != nil || !*exitCode {
			return err
		}
		return tellUnhealthy(cmd, answer)
	}
	return cmd
}

// writeStatus writes a status in a format.
func writeStatus(w io.Writer, format show.Format, answer *v1alpha1.StatusResponse, flags statusFlags) error {
	now := time.Now()
	switch {
	case format != show.Table && flags.watch:
		return show.PrintLine(w, format, "Status", show.Judged(answer, now))
	case format != show.Table:
		return show.Print(w, format, "Status", show.Judged(answer, now))
	case flags.peer != "":
		return show.Peer(w, answer, flags.peer, now)
	case flags.unhealthy:
		show.Summary(w, answer, now)
		return nil
	}
	return show.Status(w, answer, flags.details, now)
}

// watch writes an answer again and again until the command is interrupted. A service that does not
// answer is said to, and asked again; the first answer must come. once asks, and returns what writes
// the answer.
func watch(cmd *cobra.Command, format show.Format, interval time.Duration, once func() (func(io.Writer) error, error)) error {
	if interval < 100*time.Millisecond {
		return misused(fmt.Errorf("--interval %s: want 100ms or more", interval))
	}
	screen := show.ScreenOf(cmd.OutOrStdout())
	for first := true; ; first = false {
		write, err := once()
		switch {
		case cmd.Context().Err() != nil:
			return nil // that is how a watch ends
		case err != nil && first:
			return err
		}
		switch {
		case err != nil && format == show.JSON:
			_, err = show.Say(cmd.ErrOrStderr(), "isthmus: %v\n", err)
		case format == show.JSON:
			err = write(screen)
		default:
			err = show.Frame(screen, time.Now(), func(w io.Writer) error {
				if err != nil {
					_, err = show.Say(w, "isthmus: %v\n", err)
					return err
				}
				return write(w)
			})
		}
		if err != nil {
			return err
		}
		select {
		case <-cmd.Context().Done():
			return nil
		case <-time.After(interval):
		}
	}
}

// tellUnhealthy says on standard error what is wrong, and fails if anything is.
func tellUnhealthy(cmd *cobra.Command, answer *v1alpha1.StatusResponse) error {
	wrong := show.Unhealthy(answer, time.Now())
	if len(wrong) == 0 {
		return nil
	}
	for _, p := range wrong {
		show.Say(cmd.ErrOrStderr(), "unhealthy: %s\n", show.Problem(p))
	}
	return errReported
}
