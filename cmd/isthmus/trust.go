package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newTrust(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust",
		Short: "Show what is trusted, and what expires when",
		Long: `Show the certificates that the resolver service shows and believes in: its own, its roots, the
roots that count for each peer, and the certificate that each peer has shown last. No key is
ever among them.

The exit code is 1 if one of them has expired.`,
		Example: `  isthmus trust
  isthmus trust -o json`,
		Args: arguments(cobra.NoArgs),
	}
	cmd.AddCommand(newTrustRotate(c), newTrustAccept(c))
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := c.status(cmd)
		if err != nil {
			return err
		}
		now := time.Now()
		all := show.Certificates(answer, now)
		if output.Format == show.Table {
			err = show.Trust(show.ScreenOf(cmd.OutOrStdout()), answer.GetCluster(), all, now)
		} else {
			err = show.PrintList(cmd.OutOrStdout(), output.Format, "CertificateList", all)
		}
		if err == nil && show.Expired(all) {
			err = errReported
		}
		return err
	}
	return cmd
}

// status asks the service how it is.
func (c *connection) status(cmd *cobra.Command) (answer *v1alpha1.StatusResponse, err error) {
	return askFor(c, cmd, v1alpha1.NewStatusClient, v1alpha1.StatusClient.Status, &v1alpha1.StatusRequest{})
}
