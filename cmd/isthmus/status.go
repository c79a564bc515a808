package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/show"
)

func newStatus(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how the resolver service is",
		Long:  "Show how the resolver service is: its store, identity, peers, and how much it holds.",
		Example: `  isthmus status
  isthmus status --server 10.0.0.5:7400 --identity ~/.isthmus -o json`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var answer *v1alpha1.StatusResponse
		err := c.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
			answer, err = v1alpha1.NewStatusClient(conn).Status(ctx, &v1alpha1.StatusRequest{})
			return err
		})
		if err != nil {
			return err
		}
		if output.Format == show.Table {
			return show.Status(cmd.OutOrStdout(), answer, time.Now())
		}
		text, err := show.Message(answer)
		if err != nil {
			return err
		}
		var plain any
		if err := json.Unmarshal(text, &plain); err != nil {
			return err
		}
		return show.Print(cmd.OutOrStdout(), output.Format, plain)
	}
	return cmd
}
