package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newSuggest(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "suggest --from APP | --to APP | --all",
		Short: "Write the objects that the seen calls need",
		Long: `Write the object that lets in what the guards of this cluster's apps have seen, as YAML to
review. It has the endpoints or callers of the object so far, and the seen ones; never more.

With --from it is the AppEndpoints of a caller in this cluster. It holds the apps that the caller has
called here, each with a route to this cluster. With --to it is the AppExport of an app, for its
callers in other clusters, and for those of other namespaces in this one.

With --all it is the least objects for the whole cluster: what was called within the window, and
nothing else. Between apps here the word of the callee's guard counts, and the caller's where no guard
sees the callee. It says what they add and cut off beside the objects of now. -o writes each into a file
of its own, DIR/NAMESPACE/APP.KIND.yaml, for Git. With --watch it goes on until you end it, and says
which calls no object holds, and which parts of objects no call needed. A service that begins anew has
forgotten all calls. Both forms then say since when calls are known.`,
		Example: `  isthmus suggest --from shop/checkout
  isthmus suggest --to shop/orders
  isthmus suggest --from shop/checkout | isthmus apply --dry-run -f -
  isthmus suggest --all --window 24h -o objects/
  isthmus suggest --all --watch`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	from := cmd.Flags().String("from", "", "the caller, "+bothForms)
	to := cmd.Flags().String("to", "", "the callee, "+bothForms)
	all := cmd.Flags().Bool("all", false, "the least objects for the whole cluster")
	window := cmd.Flags().Duration("window", 24*time.Hour, "with --all: how far back, 10s to 24h")
	dir := cmd.Flags().StringP("output", "o", "", "with --all: the folder to write a file for each object in")
	watch := cmd.Flags().Bool("watch", false, "with --all: say what changes")
	for _, flag := range []string{"from", "to"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, c.completeApp(slashed, true))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *all && (*from != "" || *to != ""):
			return misused(errors.New("--all is for the whole cluster; leave out --from and --to"))
		case slices.Contains([]string{string(show.YAML), string(show.JSON), string(show.Table)}, *dir):
			return misused(fmt.Errorf("-o is the folder to write files in; without it the objects are printed as YAML; for a folder of that name write ./%s", *dir))
		case *all && *watch && *dir != "":
			return misused(errors.New("--watch writes nothing; leave out -o"))
		case *all:
			return suggestAll(c, cmd, *dir, *window, *watch)
		case *dir != "" || *watch || cmd.Flags().Changed("window"):
			return misused(errors.New("-o, --window and --watch are for --all"))
		case (*from == "") == (*to == ""):
			return misused(errors.New("name the caller by --from, or the callee by --to, or ask for --all"))
		}
		caller, err := c.flagApp(cmd, "from", *from)
		if err != nil {
			return err
		}
		callee, err := c.flagApp(cmd, "to", *to)
		if err != nil {
			return err
		}
		who, err := callersNow(c, cmd, callee, "", caller)
		if err != nil {
			return err
		}
		seen := slices.DeleteFunc(who.all, func(call *v1alpha1.Call) bool {
			return !show.Seen(call) || show.Caller(call) == show.Callee(call)
		})
		if *from != "" {
			return suggestEndpoints(c, cmd, caller, seen)
		}
		return suggestExport(c, cmd, callee, seen)
	}
	return cmd
}

// standingObject is the object that is stored under a key; nil if there is none.
func standingObject(c *connection, cmd *cobra.Command, key catalog.Key) (catalog.Object, error) {
	objects, err := c.get(cmd, catalog.Key{Kind: key.Kind, Namespace: key.Namespace})
	if err != nil {
		return nil, err
	}
	for i := range objects {
		if objects[i].Key() == key {
			return objects[i].Object, nil
		}
	}
	return nil, nil
}

// selectionsOf are the names of the AppEndpoints that an app follows: the first that there is.
func selectionsOf(app catalog.App) []catalog.App {
	return []catalog.App{app, {Namespace: app.Namespace, ID: catalog.DefaultName}, {Namespace: catalog.DefaultName, ID: catalog.DefaultName}}
}

func suggestEndpoints(c *connection, cmd *cobra.Command, caller catalog.App, seen []*v1alpha1.Call) error {
	next := &catalog.AppEndpoints{App: caller}
	for _, app := range selectionsOf(caller) {
		object, err := standingObject(c, cmd, catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: app.Namespace, Name: app.ID})
		if err != nil {
			return err
		}
		if old, ok := object.(*catalog.AppEndpoints); ok {
			next.Endpoints = old.For(caller).Endpoints // its own takes the place of a default whole
			break
		}
	}
	local := catalog.RouteSpec{Cluster: catalog.LocalCluster, Weight: catalog.DefaultWeight}
	added := 0
	for _, call := range seen {
		callee, here := show.Callee(call), call.GetCluster() == catalog.LocalCluster
		if here && call.GetRule() == "" && callee.Namespace != caller.Namespace {
			show.Say(cmd.ErrOrStderr(), "%s is of another namespace, and its side consents by an AppExport: isthmus suggest --to %s\n", callee, callee)
		}
		if !here || call.GetDeclared() {
			continue
		}
		if other := named(next.Endpoints, caller, callee); other != (catalog.App{}) {
			show.Say(cmd.ErrOrStderr(), "left out: %s was called before its name meant %s\n", callee, other)
			continue
		}
		at := slices.IndexFunc(next.Endpoints, func(e catalog.Endpoint) bool { return e.App == callee })
		if at < 0 {
			next.Endpoints = append(next.Endpoints, catalog.Endpoint{App: callee, Routes: []catalog.RouteSpec{local}})
		} else { // its routes lead elsewhere only
			next.Endpoints[at].Routes = append(slices.Clone(next.Endpoints[at].Routes), local)
		}
		added++
	}
	if added == 0 {
		show.Say(cmd.ErrOrStderr(), "no call of %s was seen here that its AppEndpoints does not hold\n", caller)
		return nil
	}
	return write(cmd, next)
}

// named is the other app that a caller calls by an app's name; zero if there is none.
func named(endpoints []catalog.Endpoint, caller, app catalog.App) catalog.App {
	for i := range endpoints {
		if e := &endpoints[i]; e.As != "" && e.Name(caller) == app {
			return e.App
		}
	}
	return catalog.App{}
}

func suggestExport(c *connection, cmd *cobra.Command, callee catalog.App, seen []*v1alpha1.Call) error {
	object, err := standingObject(c, cmd, catalog.Key{Kind: catalog.KindAppExport, Namespace: callee.Namespace, Name: callee.ID})
	if err != nil {
		return err
	}
	next := &catalog.AppExport{App: callee}
	if old, ok := object.(*catalog.AppExport); ok {
		next.Allow = slices.Clone(old.Allow)
	}
	added := 0
	for _, call := range seen {
		caller := show.Caller(call)
		if call.GetRule() != "" || caller == (catalog.App{}) || call.GetCluster() == catalog.LocalCluster && caller.Namespace == callee.Namespace {
			continue
		}
		if call.GetCluster() == "" {
			show.Say(cmd.ErrOrStderr(), "left out: %s of trust domain %s; no Cluster object names that domain in spec.trust.appDomain\n", caller, call.GetTrustDomain())
			continue
		}
		next.Allow = append(next.Allow, catalog.Allow{Cluster: call.GetCluster(), Namespace: caller.Namespace, App: caller.ID})
		added++
	}
	if added == 0 {
		show.Say(cmd.ErrOrStderr(), "no call of %s from another cluster or namespace was seen that its AppExport does not allow\n", callee)
		return nil
	}
	return write(cmd, next)
}

func write(cmd *cobra.Command, object catalog.Object) error {
	_, err := cmd.OutOrStdout().Write(api.EncodeYAML(object))
	return err
}
