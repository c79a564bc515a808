package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kinds"
)

// completeWithin is how long a shell waits for names from the service.
const completeWithin = time.Second

// completeWith completes with what a service says. Where it does not answer, there is nothing.
func (c *connection) completeWith(cmd *cobra.Command, names func(context.Context, *client.Conn) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	var all []string
	_ = c.askWithin(cmd, completeWithin, func(ctx context.Context, conn *client.Conn) (err error) {
		all, err = names(ctx, conn)
		return err
	})
	slices.Sort(all)
	return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
}

// completeObject completes a kind, and then the names of its objects: one, or as many as there are.
func (c *connection) completeObject(many bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0:
			return kinds.Completions(), cobra.ShellCompDirectiveNoFileComp
		case len(args) > 1 && !many:
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		kind, err := kinds.Parse(args[0])
		if err != nil || kind == kinds.All {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.completeWith(cmd, func(ctx context.Context, conn *client.Conn) (names []string, err error) {
			answer, err := v1alpha1.NewObjectsClient(conn).Get(ctx, &v1alpha1.GetRequest{Key: wire.Key(catalog.Key{Kind: kind})})
			for _, o := range answer.GetObjects() {
				key := catalog.Key{Kind: kind, Namespace: o.GetKey().GetNamespace(), Name: o.GetKey().GetName()}
				if name := key.NamespacedName(); !slices.Contains(args, name) {
					names = append(names, name)
				}
			}
			return names, err
		})
	}
}

// completeApp completes an app, in a form: the value of a flag, or the only argument.
func (c *connection) completeApp(form func(*v1alpha1.App) string, flag bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 && !flag {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.completeWith(cmd, func(ctx context.Context, conn *client.Conn) (names []string, err error) {
			stream, err := v1alpha1.NewInventoryClient(conn).Apps(ctx, &v1alpha1.AppsRequest{WithoutNamed: true})
			err = wire.Receive(stream, err, func(m *v1alpha1.AppsResponse) error {
				for _, a := range m.GetApps() {
					names = append(names, form(a.GetApp()))
				}
				return nil
			})
			return names, err
		})
	}
}

// slashed is "namespace/app", as flags take an app.
func slashed(a *v1alpha1.App) string { return a.GetNamespace() + "/" + a.GetId() }

// dotted is "app.namespace", as daprd takes an app.
func dotted(a *v1alpha1.App) string { return a.GetId() + "." + a.GetNamespace() }

// completePeer completes the name of a cluster that is linked.
func (c *connection) completePeer(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeWith(cmd, func(ctx context.Context, conn *client.Conn) (names []string, err error) {
		answer, err := v1alpha1.NewStatusClient(conn).Status(ctx, &v1alpha1.StatusRequest{})
		for _, p := range answer.GetPeers() {
			names = append(names, p.GetCluster())
		}
		return names, err
	})
}

// completeInvitation completes the ID of an invitation that is open.
func (c *connection) completeInvitation(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.completeWith(cmd, func(ctx context.Context, conn *client.Conn) (ids []string, err error) {
		answer, err := v1alpha1.NewLinkClient(conn).Invitations(ctx, &v1alpha1.InvitationsRequest{})
		for _, i := range answer.GetInvitations() {
			ids = append(ids, i.GetId()[:min(len(i.GetId()), 8)]+"\tfor cluster "+i.GetCluster())
		}
		return ids, err
	})
}
