package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// policyKinds are those that a service writes.
var policyKinds = []string{"network", "istio", "linkerd", "dapr"}

func newPolicies(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "policies [NAMESPACE/APP]",
		Short: "Write policies for Kubernetes, Istio, Linkerd or Dapr that let in declared callers",
		Long: `Write policies for the platform that let in the callers of this cluster's apps, or of one app: those
that the guard lets in. What a policy can't say stands on the error output.

network is a NetworkPolicy of Kubernetes, and istio and linkerd are policies of those meshes. They hold
for the port where sidecars take calls, and leave other ports open. dapr is an access control list for
the Configuration that the app's pods name; a change of it restarts their sidecars.`,
		Example: `  isthmus policies | kubectl apply --dry-run=server -f -
  isthmus policies --kind istio shop/orders
  isthmus policies --kind dapr -n shop -o json`,
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	c.flags(cmd, toRead)
	cmd.ValidArgsFunction = c.completeApp(slashed, false)
	filter := c.appFilter(cmd)
	kind := cmd.Flags().String("kind", "network", strings.Join(policyKinds, ", "))
	format := cmd.Flags().StringP("output", "o", "yaml", "yaml or json")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(policyKinds, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"yaml", "json"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(policyKinds, *kind) {
			return misused(fmt.Errorf("--kind %s: want one of %s", *kind, strings.Join(policyKinds, ", ")))
		}
		if *format != "yaml" && *format != "json" {
			return misused(fmt.Errorf("-o %s: want yaml or json", *format))
		}
		app, err := filter(args)
		if err != nil {
			return err
		}
		all, err := policiesOf(c, cmd, *kind, app)
		if err != nil {
			return err
		}
		if len(all) == 0 {
			return hinted(errors.New("no app of this cluster has such a name; isthmus apps lists them"), nearApps(c, cmd, app))
		}
		var objects [][]byte
		for _, p := range all {
			for _, note := range p.GetNotes() {
				show.Say(cmd.ErrOrStderr(), "%s: %s\n", show.Name(p.GetApp()), catalog.Printable(note))
			}
			objects = append(objects, p.GetObjects()...)
		}
		if *format == "json" {
			return show.List(cmd.OutOrStdout(), "v1", objects)
		}
		return show.Documents(cmd.OutOrStdout(), objects...)
	}
	return cmd
}

// policiesOf asks for those of the apps that a filter wants.
func policiesOf(c *connection, cmd *cobra.Command, kind string, app catalog.App) (all []*v1alpha1.AppPolicy, err error) {
	return askList(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Policies,
		&v1alpha1.PoliciesRequest{Kind: kind, App: wire.App(app)}, (*v1alpha1.PoliciesResponse).GetPolicies)
}
