package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kinds"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newLinkList(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List invitations, and the clusters that are linked",
		Long: `List the invitations of the replica that answers, those that have ended for an hour, and every
cluster with a Cluster object: the state of its link and the fingerprints of its roots.`,
		Example: `  isthmus link list
  isthmus link list -o json`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var links *v1alpha1.InvitationsResponse
		err := c.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
			if links, err = v1alpha1.NewLinkClient(conn).Invitations(ctx, &v1alpha1.InvitationsRequest{}); err != nil {
				return err
			}
			status, err := v1alpha1.NewStatusClient(conn).Status(ctx, &v1alpha1.StatusRequest{})
			show.Linked(links, status)
			return err
		})
		if err != nil {
			return err
		}
		return printAnswer(cmd, output.Format, "Links", links, func(w *show.Screen) error { return show.LinkTables(w, links, time.Now()) })
	}
	return cmd
}

func newLinkRevoke(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke ID",
		Short:   "End an invitation before it is used",
		Long:    `End an open invitation, by its ID or the first digits of that. The replica that made it has to answer.`,
		Example: `  isthmus link revoke 4f819a9f`,
		Args:    arguments(cobra.ExactArgs(1)),

		ValidArgsFunction: c.completeInvitation,
	}
	c.flags(cmd, toRead)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		state, err := askFor(c, cmd, v1alpha1.NewLinkClient, v1alpha1.LinkClient.Revoke, &v1alpha1.RevokeRequest{Id: args[0]})
		if err == nil {
			_, err = show.Say(cmd.OutOrStdout(), "invitation %s for cluster %s is revoked\n", state.GetId(), state.GetCluster())
		}
		return err
	}
	return cmd
}

func newLinkUnlink(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "unlink CLUSTER",
		Short: "Delete the Cluster object of a linked cluster",
		Long: `Show which lookups would end in another way without a cluster, and then delete its Cluster object
here. It asks before that, unless --yes is given. The other cluster keeps its object: unlink there,
too. Trust anchors of sidecars stay as they are.`,
		Example: `  isthmus link unlink east
  isthmus link unlink east --yes`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completePeer,
	}
	c.flags(cmd, toWrite)
	output := outputFlag(cmd)
	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := kinds.ParseKey(catalog.KindCluster, args[0], "")
		if err != nil {
			return misused(err)
		}
		erase := func(dryRun bool) error {
			return c.change(cmd, output.Format, dryRun, func(ctx context.Context, conn *client.Conn) (*v1alpha1.ApplyResponse, error) {
				return v1alpha1.NewObjectsClient(conn).Delete(ctx, &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{wire.Key(key)}, DryRun: dryRun})
			})
		}
		if !*yes {
			if err := erase(true); err != nil {
				return err
			}
			if err := askable(cmd, "delete it"); err != nil {
				return err
			}
			if err := confirm(cmd, key.String()); err != nil {
				return err
			}
		}
		return erase(false)
	}
	return cmd
}
