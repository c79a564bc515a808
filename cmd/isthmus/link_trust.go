package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newLinkTrust(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "trust CLUSTER",
		Short: "Show which sidecars lack the roots of a linked cluster",
		Long: `Show which sidecars trust none of the roots of a linked cluster, and what to do. Sidecars check each
other, so calls to and from that cluster fail until both sides trust both roots. Nothing is changed.`,
		Example: `  isthmus link trust east
  isthmus link trust east --roots > ca.crt
  isthmus link trust east --manifest | kubectl apply --server-side --force-conflicts -f -`,
		Args:              arguments(cobra.ExactArgs(1)),
		ValidArgsFunction: c.completePeer,
	}
	c.flags(cmd, toRead)
	roots := cmd.Flags().Bool("roots", false, "print the trust anchors with that cluster's roots among them, in PEM")
	manifest := cmd.Flags().Bool("manifest", false, "print Dapr's Secret and ConfigMap dapr-trust-bundle with them")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *roots && *manifest {
			return misused(errors.New("--roots and --manifest exclude each other; keep one"))
		}
		return c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
			answer, err := trustOf(ctx, conn, args[0])
			switch {
			case err != nil:
				return err
			case *roots:
				return show.TrustAnchors(cmd.OutOrStdout(), answer)
			case *manifest:
				return show.TrustManifest(cmd.OutOrStdout(), answer)
			}
			return show.LinkTrust(show.ScreenOf(cmd.OutOrStdout()), args[0], answer, linkWay(ctx, cmd, conn, args[0], answer.GetApps()...))
		})
	}
	return cmd
}

// trustOf is what the trust of a linked cluster takes, with the sidecars of all replicas.
func trustOf(ctx context.Context, conn *client.Conn, cluster string) (all *v1alpha1.LinkTrustResponse, err error) {
	known := map[string]*v1alpha1.LackingApp{}
	err = conn.Each(ctx, func(replica grpc.ClientConnInterface) error {
		answer, err := v1alpha1.NewLinkClient(replica).Trust(ctx, &v1alpha1.LinkTrustRequest{Cluster: cluster})
		if err != nil {
			return err
		}
		lacking := answer.Apps
		if all == nil {
			all, answer.Apps = answer, nil
		}
		for _, a := range lacking {
			name := show.Name(a.GetApp())
			if k := known[name]; k != nil {
				k.Sidecars, k.Meets = k.GetSidecars()+a.GetSidecars(), k.GetMeets() || a.GetMeets()
				continue
			}
			known[name] = a
			all.Apps = append(all.Apps, a)
		}
		return nil
	})
	return all, err
}

// linkWay is how the user of a command goes on, the same way as it went, with sidecars that lack roots.
func linkWay(ctx context.Context, cmd *cobra.Command, conn *client.Conn, cluster string, lacking ...*v1alpha1.LackingApp) show.LinkWay {
	flags, kubectl := conn.Flags()
	way := show.LinkWay{Trust: cmd.Root().DisplayName() + " link trust " + cluster + flags, Kubectl: kubectl}
	apps := map[string][]string{} // by namespace
	for _, a := range lacking {
		apps[a.GetApp().GetNamespace()] = append(apps[a.GetApp().GetNamespace()], a.GetApp().GetId())
	}
	for _, namespace := range slices.Sorted(maps.Keys(apps)) {
		if of := conn.Workloads(ctx, namespace, apps[namespace]); len(of) > 0 {
			way.Restart = append(way.Restart, "kubectl rollout restart"+kubectl+" -n "+namespace+" "+strings.Join(of, " "))
		}
	}
	return way
}
