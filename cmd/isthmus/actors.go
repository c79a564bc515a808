package main

import (
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/actors"
)

func newActors() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "actors -c FILE [-- DAPRD ARGUMENT…]",
		Short: "Bridge the actors of other clusters",
		Long: `Bridge Dapr's actors between clusters, for one namespace.

It runs behind a sidecar of its own, whose app-id is isthmus-actors- and the cluster's name. Apps
call an actor of another cluster as they call one of their own.

With a command after "--" it starts that sidecar itself, and again when other types are to be
bridged. Without, it tells the sidecar to end then, and whoever started the sidecar starts it again,
as Kubernetes does.`,
		Example: `  isthmus actors -c actors.yaml
  isthmus actors -c actors.yaml -- daprd --app-id isthmus-actors-west --app-port 7460 --config isthmus.yaml`,
		Args: cobra.ArbitraryArgs,
	}
	file := cmd.Flags().StringP("config", "c", "actors.yaml", "configuration file")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if before := cmd.ArgsLenAtDash(); len(args) > 0 && before != 0 {
			return misused(fmt.Errorf("unexpected %q; write the sidecar's command after --", args[0]))
		}
		cfg, err := actors.Load(*file)
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return errReported
		}
		log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil)).With("cluster", cfg.Cluster)
		var sidecar actors.Sidecar = actors.Injected{Daprd: cfg.Daprd}
		if len(args) > 0 {
			sidecar = actors.NewChild(args, log)
		}
		bridge, err := actors.New(cfg, sidecar, log)
		if err != nil {
			return err
		}
		return bridge.Run(cmd.Context())
	}
	return cmd
}
