package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// meetingTime is how long a meeting may take with two persons who compare words.
const meetingTime = 12 * time.Minute

func newLinkInvite(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "invite CLUSTER",
		Short: "Invite another cluster",
		Long: `Open an invitation for the cluster of that name, and print it. It is for one use, and a secret
until then: give it to an operator of that cluster over a channel that others do not read. It has
no key of yours and no credential.

With --wait, --confirm or --out the command goes on until the invitation is accepted or has ended.`,
		Example: `  isthmus link invite west
  isthmus link invite west --expires 1h --gateway gw.east.example:15443 --confirm
  isthmus link invite west --out clusters/west.yaml`,
		Args: arguments(cobra.ExactArgs(1)),
	}
	c.flags(cmd, toWrite)
	output := outputFlag(cmd)
	flags := &linkFlags{}
	flags.add(cmd)
	expires := cmd.Flags().Duration("expires", 15*time.Minute, "how long the invitation lasts, at most 24h")
	wait := cmd.Flags().Bool("wait", false, "wait until it is accepted, and tell what is to be done then")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *expires < time.Second || *expires > 24*time.Hour {
			return misused(fmt.Errorf("--expires %s: want a time from 1s to 24h", *expires))
		}
		waits := *wait || flags.confirm || flags.out != ""
		if err := waiting(cmd, waits, *expires+meetingTime); err != nil {
			return err
		}
		return c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
			if err := announce(ctx, cmd, conn); err != nil {
				return err
			}
			var answer *v1alpha1.InviteResponse
			err := flags.ask(ctx, cmd, conn, func() (err error) {
				answer, err = v1alpha1.NewLinkClient(conn).Invite(ctx, &v1alpha1.InviteRequest{
					Cluster: args[0], ExpiresS: uint32(expires.Seconds()), Options: flags.options(),
				})
				return err
			})
			if err != nil {
				return err
			}
			if err := printInvitation(cmd, output.Format, flags.out == "-", answer, "for cluster %s, once, until %s; there: isthmus link accept, which asks for it\nit is a secret until then; isthmus link revoke %.8s ends it\n"); err != nil || !waits {
				return err
			}
			l := &linking{cmd: cmd, conn: conn, flags: flags}
			stream, err := v1alpha1.NewLinkClient(conn).Follow(ctx, &v1alpha1.FollowRequest{Id: answer.GetState().GetId()})
			if err := wire.Receive(stream, err, l.take); err != nil {
				return err
			}
			return l.end(ctx, output.Format)
		})
	}
	return cmd
}

// waiting gives a command more time that waits for people, unless it was told how much.
func waiting(cmd *cobra.Command, waits bool, most time.Duration) error {
	if !waits || cmd.Flags().Changed("timeout") {
		return nil
	}
	return cmd.Flags().Set("timeout", most.String())
}

// printInvitation prints the string alone on standard output, so that programs can take it.
func printInvitation(cmd *cobra.Command, format show.Format, aside bool, answer *v1alpha1.InviteResponse, note string) error {
	out, state := cmd.OutOrStdout(), answer.GetState()
	if aside {
		out = cmd.ErrOrStderr()
	}
	if format != show.Table {
		return show.PrintLine(out, format, "Invitation", answer)
	}
	if _, err := fmt.Fprintln(out, answer.GetInvitation()); err != nil {
		return err
	}
	_, err := show.Say(cmd.ErrOrStderr(), note,
		state.GetCluster(), time.UnixMilli(state.GetExpiresUnixMs()).Format(time.RFC3339), state.GetId())
	return err
}

func newLinkAccept(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accept [INVITATION]",
		Short: "Accept another cluster's invitation",
		Long: `Accept an invitation. The resolver service of this cluster meets the one that invites, through its
gateway; this command only tells it to. Then each has the Cluster object of the other, and this
command says which sidecars still lack the other's roots.

Without an argument, or with -, the invitation is read from standard input. As an argument it would
be in lists of processes and in the shell's history.`,
		Example: `  isthmus link accept
  isthmus link accept --dial-out
  isthmus link accept --confirm < invitation
  isthmus link accept --out clusters/east.yaml < invitation`,
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	c.flags(cmd, toWrite)
	output := outputFlag(cmd)
	flags := &linkFlags{}
	flags.add(cmd)
	without := cmd.Flags().Bool("no-gateway", false, "no app there is to call this cluster, which then needs no gateway")
	dialOut := cmd.Flags().Bool("dial-out", false, "this cluster can't be reached: it dials the other one, and is called over that connection")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *without && *dialOut || (*without || *dialOut) && cmd.Flags().Changed("gateway") {
			return misused(errors.New("--gateway, --dial-out and --no-gateway exclude each other: how the other cluster reaches this one, that it can't, or that it need not; keep one"))
		}
		invitation, err := secretArgument(cmd, args)
		if err != nil {
			return fmt.Errorf("read the invitation from standard input: %w", err)
		}
		if err := waiting(cmd, true, meetingTime); err != nil {
			return err
		}
		return c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
			if err := announce(ctx, cmd, conn); err != nil {
				return err
			}
			l := &linking{cmd: cmd, conn: conn, flags: flags}
			err := flags.ask(ctx, cmd, conn, func() error {
				options := flags.options()
				options.NoGateway, options.DialOut = *without, *dialOut
				stream, err := v1alpha1.NewLinkClient(conn).Accept(ctx, &v1alpha1.AcceptRequest{Invitation: invitation, Options: options})
				return wire.Receive(stream, err, l.take)
			})
			if err != nil {
				return err
			}
			return l.end(ctx, output.Format)
		})
	}
	return cmd
}
