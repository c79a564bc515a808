package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/actors"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newActors() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "actors -c FILE",
		Short: "Bridge the actors of other clusters",
		Long: `Bridge Dapr's actors between clusters, for one namespace.

Apps call an actor of another cluster as they call one of their own: the bridge is a host of its type
to their sidecars, and passes the call on to the bridge of the cluster that owns the type. It needs
the resolver service, Dapr's placement service, and an identity; it needs no sidecar.`,
		Example: `  isthmus actors -c actors.yaml`,
		Args:    cobra.NoArgs,
	}
	file := cmd.Flags().StringP("config", "c", "actors.yaml", "configuration file")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := actors.Load(*file)
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), show.Lines(err))
			return errReported
		}
		log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)).With("cluster", cfg.Cluster)
		bridge, err := actors.New(cfg, programVersion(), log)
		if err != nil {
			return err
		}
		return bridge.Run(cmd.Context())
	}
	return cmd
}

// explainActor says where an app's call of an actor goes. All actors of a type go the same way.
func explainActor(c *connection, cmd *cobra.Command, from, actor string, output *format) error {
	if from == "" {
		return misused(errors.New("--from is missing; name the calling app as " + bothForms))
	}
	caller, err := c.flagApp(cmd, "from", from)
	if err != nil {
		return err
	}
	typ, _, _ := strings.Cut(actor, "/")
	if err := catalog.CheckActorType(typ); err != nil {
		return misused(fmt.Errorf("--actor: %w", err))
	}
	d, err := askFor(c, cmd, v1alpha1.NewResolverClient, v1alpha1.ResolverClient.Resolve, &v1alpha1.ResolveRequest{
		Caller: wire.App(caller), Actor: typ,
	})
	if err != nil {
		return err
	}
	err = printAnswer(cmd, output.Format, "Decision", d, func(w *show.Screen) error { return show.Explain(w, caller.String(), "actor "+actor, d) })
	if err == nil && d.GetOutcome() != catalog.OK.String() {
		err = errReported
	}
	return err
}
