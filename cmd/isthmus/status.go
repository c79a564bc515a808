package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/show"
)

func newStatus(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the resolver service is",
		Long: `Show how the resolver service is: its store, identity, DNS, sources of instances, peers, and how
much it holds. JSON and YAML have all of it, whatever is asked for.

With --exit-code it says on standard error what is wrong, and then the exit code is 1.`,
		Example: `  isthmus status
  isthmus status --peer east
  isthmus status --exit-code -o json >status.json
  isthmus status --server 10.0.0.5:7400 --identity ~/.isthmus -o json`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	details := cmd.Flags().BoolP("verbose", "v", false, "all that is known of each peer, and what sources have that can't be used")
	peer := cmd.Flags().String("peer", "", "all that is known of this peer, and nothing else")
	exitCode := cmd.Flags().Bool("exit-code", false, "say what is wrong; the exit code is 1 then")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := c.status(cmd)
		switch {
		case err != nil:
			return err
		case output.Format != show.Table:
			err = printStatus(cmd, output.Format, answer)
		case *peer != "":
			err = show.Peer(cmd.OutOrStdout(), answer, *peer, time.Now())
		default:
			err = show.Status(cmd.OutOrStdout(), answer, *details, time.Now())
		}
		if err != nil || !*exitCode {
			return err
		}
		return tellUnhealthy(cmd, answer)
	}
	return cmd
}

// tellUnhealthy says on standard error what is wrong, and fails if anything is.
func tellUnhealthy(cmd *cobra.Command, answer *v1alpha1.StatusResponse) error {
	wrong := show.Unhealthy(answer, time.Now())
	if len(wrong) == 0 {
		return nil
	}
	for _, one := range wrong {
		fmt.Fprintf(cmd.ErrOrStderr(), "unhealthy: %s\n", one)
	}
	return errReported
}

func printStatus(cmd *cobra.Command, format show.Format, answer *v1alpha1.StatusResponse) error {
	text, err := show.Message(answer)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(text, &plain); err != nil {
		return err
	}
	return show.Print(cmd.OutOrStdout(), format, plain)
}
