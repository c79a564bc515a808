package main

import (
	"encoding/json"
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
much it holds. JSON and YAML have all of it, whatever is asked for.`,
		Example: `  isthmus status
  isthmus status --peer east
  isthmus status --server 10.0.0.5:7400 --identity ~/.isthmus -o json`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	details := cmd.Flags().BoolP("verbose", "v", false, "all that is known of each peer, and what sources have that can't be used")
	peer := cmd.Flags().String("peer", "", "all that is known of this peer, and nothing else")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := c.status(cmd)
		switch {
		case err != nil:
			return err
		case output.Format != show.Table:
			return printStatus(cmd, output.Format, answer)
		case *peer != "":
			return show.Peer(cmd.OutOrStdout(), answer, *peer, time.Now())
		default:
			return show.Status(cmd.OutOrStdout(), answer, *details, time.Now())
		}
	}
	return cmd
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
