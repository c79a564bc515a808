package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/laptop"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/guests"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/invitation"
)

func newDev(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev COMMAND",
		Short: "Let a laptop join a cluster for an afternoon",
		Long: `Let a developer's laptop join a cluster as a guest. An operator of the cluster invites, and the laptop
joins: an app that runs there calls what that app may call in the cluster, and gets the calls that the
invitation names.`,
		Example: `  isthmus dev invite anna-laptop --app shop/orders --for caller=shop/checkout-dev --hours 4
  isthmus dev join --app orders --port 8080`,
		RunE: unknownCommand,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newDevInvite(c), newDevJoin(), newDevKeys())
	return cmd
}

// takeFlags say which calls are taken.
type takeFlags struct{ apps, fors []string }

func (f *takeFlags) add(cmd *cobra.Command, more string) {
	cmd.Flags().StringArrayVar(&f.apps, "take", nil, "app whose calls are taken, namespace/app-id; without it the one of --app")
	cmd.Flags().StringArrayVar(&f.fors, "for", nil, "which of its calls: caller=shop/checkout-dev for all of that app, or header=x-dev:anna for those with that header; can be given more than once"+more)
}

// appsOf reads the apps that a flag names.
func appsOf(c *connection, cmd *cobra.Command, flag string, names []string) (all []string, err error) {
	for _, name := range names {
		app, err := c.flagApp(cmd, flag, name)
		if err != nil {
			return nil, err
		}
		all = append(all, app.String())
	}
	return all, nil
}

// takes are all ways for each app, as namespace/app-id.
func (f *takeFlags) takes(apps []string) (all []*v1alpha1.Take, err error) {
	if len(f.apps) > 0 {
		apps = f.apps
	}
	if len(f.apps) > 0 && len(f.fors) == 0 {
		return nil, misused(errors.New("--take needs --for, which says whose calls are taken: --for caller=shop/checkout-dev, or --for header=x-dev:anna"))
	}
	for _, text := range f.fors {
		kind, value, _ := strings.Cut(text, "=")
		name, content, header := strings.Cut(value, ":")
		if kind != "caller" && kind != "header" || value == "" || kind == "header" && !header {
			return nil, misused(fmt.Errorf("--for %q: want caller=namespace/app-id or header=name:value", text))
		}
		for _, app := range apps {
			t := &v1alpha1.Take{App: app, Caller: value}
			if kind == "header" {
				t = &v1alpha1.Take{App: app, Header: &v1alpha1.HeaderValue{Name: strings.TrimSpace(name), Value: strings.TrimSpace(content)}}
			}
			all = append(all, t)
		}
	}
	return all, nil
}

func newDevInvite(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "invite NAME",
		Short: "Invite a laptop as a guest of this cluster",
		Long: `Open an invitation for a laptop, and print it. It is for one use, and a secret until then: give it to
the developer over a channel that others do not read.

The guest runs one of the apps of --app, and its sidecar has a certificate of that app which this
cluster's Sentry signs, in a trust domain of the guest's own. It may call what the app may call here.
It gets the calls of --for, and no others. It takes the right to write objects. With
header=x-dev:* the guest chooses the value.`,
		Example: `  isthmus dev invite anna-laptop --app shop/orders
  isthmus dev invite anna-laptop --app shop/orders --for caller=shop/checkout-dev --hours 4
  isthmus dev invite anna-laptop --app shop/orders --for 'header=x-dev:*' --gateway 203.0.113.7:15443`,
		Args: arguments(cobra.ExactArgs(1)),
	}
	c.flags(cmd, toWrite)
	output := outputFlag(cmd)
	link, take := &linkFlags{}, &takeFlags{}
	cmd.Flags().StringSliceVar(&link.gateways, "gateway", nil, "where the laptop reaches this cluster's gateway, host:port; can be given more than once; without it gateway.advertise of isthmus.yaml, or in Kubernetes the address of the gateway's load balancer")
	apps := cmd.Flags().StringArray("app", nil, "app that the guest may run, namespace/app-id; given more than once, the guest chooses one")
	take.add(cmd, "")
	hours := cmd.Flags().Float64("hours", 4, "how long the guest stays, at most 24")
	expires := cmd.Flags().Duration("expires", 15*time.Minute, "how long the invitation lasts, at most 24h")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(*apps) == 0 {
			return misused(errors.New("--app is missing: name the app that the guest runs, such as --app shop/orders"))
		}
		if *expires < time.Second || *expires > 24*time.Hour || *hours <= 0 || *hours > 24 {
			return misused(fmt.Errorf("--expires %s and --hours %v: want an invitation of 1s to 24h, and a guest of at most 24 hours", *expires, *hours))
		}
		runs, err := appsOf(c, cmd, "app", *apps)
		if err != nil {
			return err
		}
		if take.apps, err = appsOf(c, cmd, "take", take.apps); err != nil {
			return err
		}
		takes, err := take.takes(runs)
		if err != nil {
			return err
		}
		return c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
			if err := announce(ctx, cmd, conn); err != nil {
				return err
			}
			var answer *v1alpha1.InviteResponse
			err := link.ask(ctx, cmd, conn, func() (err error) {
				answer, err = v1alpha1.NewLinkClient(conn).Invite(ctx, &v1alpha1.InviteRequest{
					Cluster: args[0], ExpiresS: uint32(expires.Seconds()), Options: link.options(),
					Guest: &v1alpha1.GuestOffer{Apps: runs, Takes: takes, LastsS: uint32(*hours * 3600)},
				})
				return err
			})
			if err != nil {
				return err
			}
			return printInvitation(cmd, output.Format, false, answer, "for guest %s, once, until %s; there: isthmus dev join --port PORT, which asks for it\nit is a secret until then; isthmus link revoke %.8s ends it\n")
		})
	}
	return cmd
}

func newDevJoin() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "join [INVITATION]",
		Short: "Join a cluster as a guest, with an app of this machine",
		Long: `Join the cluster that invites, as a guest. This command runs a resolver service with a temporary store,
which dials the cluster's gateway, and daprd before the app that listens on --port. The app calls others
through daprd, whose ports are printed. Ctrl-C ends it, or the time that the invitation allows.

Without an argument, or with -, the invitation is read from standard input. As an argument it would
be in lists of processes and in the shell's history.`,
		Example: `  isthmus dev join --app orders --port 8080
  isthmus dev join --port 8080 --for header=x-dev:anna < invitation
  isthmus dev join --show < invitation`,
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	o, take := laptop.Options{}, &takeFlags{}
	cmd.Flags().StringVar(&o.App, "app", "", "which app of the invitation runs here; without it the only one")
	cmd.Flags().IntVar(&o.Port, "port", 0, "port of this machine at which the app listens")
	cmd.Flags().StringVar(&o.Protocol, "app-protocol", "http", "http or grpc, as of daprd")
	take.add(cmd, "; without it all that the invitation offers")
	cmd.Flags().BoolVar(&o.NoTakes, "no-takes", false, "take no calls, only make them")
	cmd.Flags().StringVar(&o.Daprd, "daprd", "", "the daprd with Isthmus; without it the one beside isthmus, or on the PATH")
	cmd.Flags().IntVar(&o.HTTPPort, "dapr-http-port", 3500, "of daprd, if it is free; otherwise another")
	cmd.Flags().IntVar(&o.GRPCPort, "dapr-grpc-port", 50001, "of daprd, if it is free; otherwise another")
	cmd.Flags().StringArrayVar(&o.Resources, "resources-path", nil, "directory with Dapr components of the app, as of daprd; can be given more than once")
	asks := cmd.Flags().Bool("show", false, "show what the invitation says, and use it not")
	verbose := cmd.Flags().Bool("verbose", false, "write the log of service and daprd to standard error")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if o.Port <= 0 && !*asks {
			return misused(errors.New("--port is missing: the port of this machine at which the app listens, such as --port 8080"))
		}
		if o.Takes, err = take.takes([]string{""}); err != nil {
			return err
		}
		if o.Invitation, err = secretArgument(cmd, args); err != nil {
			return fmt.Errorf("read the invitation from standard input: %w", err)
		}
		if *asks {
			offer, err := invitation.Read(o.Invitation)
			if err == nil {
				show.Say(cmd.OutOrStdout(), "guest %s of cluster %s, at %s\n%s\n", offer.GetInvited(), offer.GetCluster(), strings.Join(offer.GetGateways(), ", "), protojson.Format(offer.GetGuest()))
			}
			return err
		}
		o.Out, o.Version = cmd.ErrOrStderr(), programVersion()
		if *verbose {
			o.Verbose = cmd.ErrOrStderr()
		}
		return laptop.Run(cmd.Context(), o)
	}
	return cmd
}

func newDevKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jwks KEY",
		Short: "Print what Sentry needs to sign for guests in Kubernetes",
		Long: `Print the public half of guests.key as a JWKS. Give it to Sentry's validator "jwks", which then signs what
the resolver service asks for. Whoever has the key has certificates of every app of the cluster.`,
		Example: `  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out guests.pem
  isthmus dev jwks guests.pem`,
		Args: arguments(cobra.ExactArgs(1)),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := guests.ReadKey(args[0])
		if err != nil {
			return err
		}
		text, err := key.JWKS()
		if err == nil {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), string(text))
		}
		return err
	}
	return cmd
}
