package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newGraph(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "graph [--why CALLER CALLEE]",
		Short: "Draw the apps and clusters with the calls between them",
		Long: `Draw the apps of a cluster, the other clusters, and the calls: those that AppEndpoints declare and
those that the callees' guards have seen. An app without AppEndpoints declares no call.

Green is a route that lookups take now; dashed, one that was never seen while others were. Grey
and dashed stands by, orange is stale, red and dashed has no ready instance. Red is a call that
was seen and that nothing lets in.

On a terminal each call has a line of a table. Beside --via and a cluster it also says whom it hurts that this
cluster is away: calls that fail, that go elsewhere, or that go on to the instances last heard of.

With --why it prints every object behind the calls of one app to another.`,
		Example: `  isthmus graph
  isthmus graph > graph.svg
  isthmus graph -o dot --app shop/checkout --app shop/orders
  isthmus graph -o mermaid --app shop/orders --steps 2
  isthmus graph --via east
  isthmus graph --why shop/checkout shop/orders`,
	}
	c.flags(cmd, toRead)
	format := cmd.Flags().StringP("output", "o", "", "svg, dot or mermaid for pictures, table, json or yaml; without it a table on a terminal, and svg elsewhere")
	formats := append(slices.Clone(show.GraphFormats), "table", "json", "yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
	var filter show.GraphFilter
	apps := cmd.Flags().StringArray("app", nil, "only calls by or of this app, "+bothForms+"; may be there several times")
	cmd.Flags().IntVar(&filter.Steps, "steps", 1, "with --app, how many calls the ways to the app and from it have at most: 1 or 2")
	cmd.Flags().StringArrayVar(&filter.Clusters, "via", nil, "only routes to this cluster; may be there several times")
	cmd.Flags().BoolVar(&filter.Seen, "seen", false, "only calls that were seen")
	cmd.Flags().BoolVar(&filter.Declared, "declared", false, "only calls that an object declares")
	why := cmd.Flags().Bool("why", false, "print the objects behind the calls of one app to another")
	_ = cmd.RegisterFlagCompletionFunc("app", c.completeApp(slashed, true))
	cmd.ValidArgsFunction = c.completeApp(slashed, true)
	var ends []catalog.App
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case *why && len(args) != 2:
			return misused(errors.New("--why wants two apps: isthmus graph --why CALLER CALLEE"))
		case !*why && len(args) > 0:
			return misused(fmt.Errorf("unexpected %q; filter by --app %s", args[0], args[0]))
		case filter.Steps < 1 || filter.Steps > 2 || filter.Steps == 2 && len(*apps) == 0:
			return misused(fmt.Errorf("--steps %d: want 1 or 2, and an --app", filter.Steps))
		case *format != "" && !slices.Contains(formats, *format):
			return misused(fmt.Errorf("-o %s: want one of %s", *format, strings.Join(formats, ", ")))
		}
		for i, name := range append(slices.Clone(*apps), args...) {
			app, err := c.app(cmd, name)
			if err != nil {
				return misused(err)
			}
			if i < len(*apps) {
				filter.Apps = append(filter.Apps, app)
			} else {
				ends = append(ends, app)
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *why {
			return graphWhy(c, cmd, ends[0], ends[1])
		}
		if *format == "" {
			*format = "svg"
			if show.ScreenOf(cmd.OutOrStdout()).Terminal {
				*format = "table"
			}
		}
		req := &v1alpha1.GraphRequest{}
		if filter.Steps > 1 && len(filter.Apps) == 1 { // with one step, apps that nothing declares are asked for, too
			req.Focus, req.Steps = wire.App(filter.Apps[0]), uint32(filter.Steps)
		}
		if filter.Whole = *format == "table"; filter.Whole && filter.Steps == 1 && len(filter.Clusters) == 1 {
			req.Via = filter.Clusters[0]
		}
		g := &v1alpha1.GraphResponse{}
		err := askEach(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Graph, req, func(m *v1alpha1.GraphResponse) error { show.AddGraph(g, m); return nil })
		if err != nil {
			return err
		}
		seen, err := callersNow(c, cmd, catalog.App{}, "", catalog.App{})
		if err != nil {
			return err
		}
		show.AddSeen(g, seen.all)
		show.Filter(g, filter)
		switch {
		case *format == "json", *format == "yaml":
			return show.Print(cmd.OutOrStdout(), show.Format(*format), "Graph", g)
		case *format == "table" && len(g.GetCalls()) == 0:
			printNone(c, cmd, "calls", append(filter.Apps, catalog.App{})[0])
			return nil
		case *format == "table":
			return show.GraphTable(show.ScreenOf(cmd.OutOrStdout()), g)
		}
		return show.Picture(cmd.OutOrStdout(), g, *format)
	}
	return cmd
}

// graphWhy prints the objects behind a caller's way to a callee, in the order in which they decide.
func graphWhy(c *connection, cmd *cobra.Command, caller, callee catalog.App) error {
	d, err := askFor(c, cmd, v1alpha1.NewResolverClient, v1alpha1.ResolverClient.Resolve, &v1alpha1.ResolveRequest{
		Caller: wire.App(caller), App: wire.App(callee),
	})
	if err != nil {
		return err
	}
	objects, err := c.get(cmd, catalog.Key{})
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	fmt.Fprintf(out, "%s asks for %s: %s\n", caller, callee, d.GetOutcome())
	fmt.Fprintf(out, "\n# decides what %s may call: %s\n", caller, catalog.Printable(d.GetRule()))
	print := func(why string, key catalog.Key) bool { return printObject(out, objects, why, key) }
	print("", catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: caller.Namespace, Name: caller.ID})
	for _, r := range d.GetRoutes() {
		route := fmt.Sprintf("route to %s, priority %d, weight %d: %s", r.GetCluster(), r.GetPriority(), r.GetWeight(), catalog.Printable(r.GetReason()))
		if print(route, catalog.Key{Kind: catalog.KindCluster, Name: r.GetCluster()}) {
			continue
		}
		fmt.Fprintf(out, "\n# %s\n", route)
		for i := range objects {
			if in, ok := objects[i].Object.(*catalog.AppInstance); ok && in.AppRef() == callee {
				print("an instance here", in.Key())
			}
		}
	}
	print("lets callers of other clusters call "+callee.String()+" here", catalog.Key{Kind: catalog.KindAppExport, Namespace: callee.Namespace, Name: callee.ID})
	return nil
}

// printObject prints an object below a line that says why, and tells whether there is one.
func printObject(out io.Writer, objects []show.Object, why string, key catalog.Key) bool {
	for i := range objects {
		if objects[i].Key() != key {
			continue
		}
		if why != "" {
			fmt.Fprintf(out, "\n# %s\n", why)
		}
		if objects[i].Stored != "" {
			fmt.Fprintf(out, "# %s\n", objects[i].Stored)
		}
		_, _ = out.Write(api.EncodeYAML(objects[i].Object))
		return true
	}
	return false
}
