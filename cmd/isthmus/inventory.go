package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newApps(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apps [NAMESPACE/APP]",
		Short: "List the apps that run here or in other clusters",
		Long: `List the apps that run in this cluster, that an object here is about, or that other clusters
export to this one. Of other clusters a service knows only their exports to it.

HERE counts addresses that take calls, ELSEWHERE instances by cluster. CALLERS counts the apps here
whose AppEndpoints hold the app. With -v, or for one app, each instance has a line.

Where there are many clusters, it leaves out the apps that others export and that nothing here leads
to. --search, an app's name, and --all find them too.`,
		Example: `  isthmus apps
  isthmus apps shop/orders
  isthmus apps -n shop --without-instances
  isthmus apps --search order`,
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	c.flags(cmd, toRead)
	cmd.ValidArgsFunction = c.completeApp(slashed, false)
	output, filter, search := outputFlag(cmd), c.appFilter(cmd), searchFlag(cmd)
	details := cmd.Flags().BoolP("verbose", "v", false, "each instance")
	without := cmd.Flags().Bool("without-instances", false, "only apps that have no instance here that takes calls")
	exported := cmd.Flags().Bool("exported", false, "only apps that this cluster exports")
	every := cmd.Flags().Bool("all", false, "also apps of other clusters that nothing here leads to")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		app, err := filter(args)
		if err != nil {
			return err
		}
		leftOut := uint32(0)
		var all []*v1alpha1.AppState
		req := &v1alpha1.AppsRequest{Namespace: app.Namespace, Id: app.ID, Search: *search, WithoutNamed: !*every && *search == "" && app.ID == ""}
		err = askEach(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Apps, req, func(m *v1alpha1.AppsResponse) error {
			all, leftOut = append(all, m.GetApps()...), leftOut+m.GetLeftOut()
			return nil
		})
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(a *v1alpha1.AppState) bool {
			return *without && a.GetReady() > 0 || *exported && len(a.GetExportedTo()) == 0
		})
		return printList(c, cmd, output.Format, "AppList", "apps", app, all, func(w *show.Screen) error { return show.Apps(w, all, leftOut, *details || app.ID != "") })
	}
	return cmd
}

// apps asks for apps.
func (c *connection) apps(cmd *cobra.Command, req *v1alpha1.AppsRequest) (all []*v1alpha1.AppState, err error) {
	return askList(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Apps, req, (*v1alpha1.AppsResponse).GetApps)
}

func newSidecars(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sidecars [NAMESPACE/APP]",
		Short: "List the sidecars that are connected",
		Long: `List the sidecars whose streams the service has; where it has replicas, those of the replica that
answers. "waiting for its app" means that the app does not listen yet, so no calls go there.

VIEW is the revision of the view that the sidecar has. It is behind where the sidecar has not read
the newest one yet.`,
		Example: `  isthmus sidecars
  isthmus sidecars shop/orders
  isthmus sidecars --not-ready`,
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	c.flags(cmd, toRead)
	cmd.ValidArgsFunction = c.completeApp(slashed, false)
	output, filter, search := outputFlag(cmd), c.appFilter(cmd), searchFlag(cmd)
	notReady := cmd.Flags().Bool("not-ready", false, "only those that get no calls")
	behind := cmd.Flags().Bool("behind", false, "only those without the newest view")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		app, err := filter(args)
		if err != nil {
			return err
		}
		all, err := askList(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Sidecars,
			&v1alpha1.SidecarsRequest{Namespace: app.Namespace, Id: app.ID, Search: *search}, (*v1alpha1.SidecarsResponse).GetSidecars)
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(s *v1alpha1.SidecarState) bool {
			return *notReady && s.GetState() == "ready" || *behind && show.Current(s)
		})
		return printList(c, cmd, output.Format, "SidecarList", "sidecars", app, all, func(w *show.Screen) error { return show.Sidecars(w, all, time.Now()) })
	}
	return cmd
}

func searchFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("search", "", "only apps with this text in namespace/app-id")
}
