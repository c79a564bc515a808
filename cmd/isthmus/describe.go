package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kinds"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newDescribe(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "describe APP | KIND NAME...",
		Short: "Show all that there is about an app or an object",
		Long: `Show an app, or objects: the YAML, what the service makes of it, what analyze finds in it, and the
events of the last hour about it.

Of an app and of AppEndpoints it also says how each lookup ends, as explain does in full. Of an app
and of an AppExport it says who may call. Of a Cluster it has the link to it.`,
		Example: `  isthmus describe shop/checkout
  isthmus describe checkout -n shop
  isthmus describe aep checkout -n shop
  isthmus describe cluster east`,
		Args: arguments(cobra.MinimumNArgs(1)),
	}
	c.flags(cmd, toRead)
	namespace := c.namespaceFlag(cmd, "namespace of the app or of the objects")
	since := cmd.Flags().Duration("since", time.Hour, "how far to look back for events")
	object := c.completeObject(true)
	app := c.completeApp(slashed, false)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		all, directive := object(cmd, args, typed)
		if len(args) == 0 {
			apps, _ := app(cmd, args, typed)
			all = append(all, apps...)
		}
		return all, directive
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d := &description{c: c, cmd: cmd, screen: show.ScreenOf(cmd.OutOrStdout()), since: *since}
		if kind, _, joined := strings.Cut(args[0], "/"); len(args) == 1 && !(joined && isKind(kind)) {
			about, err := describedApp(c, cmd, args[0], *namespace)
			if err != nil {
				return err
			}
			return d.app(about)
		}
		keys, err := kinds.ParseKeys(args, *namespace)
		if err != nil {
			return misused(err)
		}
		for i, key := range keys {
			if i > 0 {
				show.Say(d.screen, "\n")
			}
			if err := d.object(key); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func isKind(s string) bool {
	kind, err := kinds.Parse(s)
	return err == nil && kind != kinds.All
}

// describedApp reads the one argument of describe, which is an app.
func describedApp(c *connection, cmd *cobra.Command, name, namespace string) (catalog.App, error) {
	if namespace != "" && !strings.ContainsAny(name, "/.") {
		app := catalog.App{Namespace: namespace, ID: name}
		return app, misused(app.Check())
	}
	if isKind(name) {
		return catalog.App{}, misused(fmt.Errorf("NAME is missing; usage: %s", cmd.UseLine()))
	}
	app, err := c.app(cmd, name)
	return app, misused(err)
}

// description writes what there is about an app or an object.
type description struct {
	c      *connection
	cmd    *cobra.Command
	screen *show.Screen
	since  time.Duration
}

func (d *description) heading(text string) { show.Say(d.screen, "\n%s\n", text) }

func (d *description) app(app catalog.App) error {
	states, err := d.c.apps(d.cmd, &v1alpha1.AppsRequest{Namespace: app.Namespace, Id: app.ID})
	if err != nil {
		return err
	}
	objects, err := d.c.get(d.cmd, catalog.Key{Namespace: app.Namespace})
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o show.Object) bool { return !isAbout(o.Object, app) })
	if len(states) == 0 && len(objects) == 0 {
		return hinted(fmt.Errorf("no app %s: it has no instance, no object here is about it, and no other cluster exports it to this one", app), nearApps(d.c, d.cmd, app))
	}
	show.Say(d.screen, "app %s\n\n", app)
	if err := show.Apps(d.screen, states, 0, true); err != nil {
		return err
	}
	var keys []catalog.Key
	for i := range objects {
		keys = append(keys, objects[i].Key())
		d.yaml(&objects[i])
	}
	if err := d.callees(app); err != nil {
		return err
	}
	if err := d.callers(app); err != nil {
		return err
	}
	return d.news(keys, app.String())
}

// isAbout tells whether an object is about an app.
func isAbout(object catalog.Object, app catalog.App) bool {
	switch o := object.(type) {
	case *catalog.AppEndpoints:
		return o.App == app
	case *catalog.AppExport:
		return o.App == app
	case *catalog.AppInstance:
		return o.AppRef() == app
	}
	return false
}

func (d *description) object(key catalog.Key) error {
	objects, err := d.c.get(d.cmd, key)
	if err != nil {
		return err
	}
	for i := range objects {
		show.Say(d.screen, "%s\n", key)
		if versions, err := pastObjects(d.c, d.cmd, key, 1, ""); err == nil && len(versions) > 0 {
			show.Say(d.screen, "written %s, revision %s\n", show.Stamp(versions[0].GetAtUnixMs()), objects[i].Revision)
		}
		d.yaml(&objects[i])
	}
	switch app := (catalog.App{Namespace: key.Namespace, ID: key.Name}); key.Kind {
	case catalog.KindAppEndpoints:
		err = d.callees(app)
	case catalog.KindAppExport:
		err = d.callers(app)
	case catalog.KindCluster:
		err = d.link(key.Name)
	}
	if err != nil {
		return err
	}
	return d.news([]catalog.Key{key}, key.NamespacedName())
}

func (d *description) yaml(o *show.Object) {
	show.Say(d.screen, "\n")
	if o.Refused != "" {
		show.Say(d.screen, "# %s\n", o.Notice())
	}
	_, _ = d.screen.Write(api.EncodeYAMLAt(o.Object, o.Revision))
}

// callees says how the lookups of an app end that it has declared.
func (d *description) callees(app catalog.App) error {
	if app.ID == catalog.DefaultName {
		return nil // nobody looks up as that
	}
	g := &v1alpha1.GraphResponse{}
	var all []*v1alpha1.Decision
	var names []string
	err := d.c.ask(d.cmd, func(ctx context.Context, conn *client.Conn) error {
		stream, err := v1alpha1.NewInventoryClient(conn).Graph(ctx, &v1alpha1.GraphRequest{Focus: wire.App(app)})
		err = wire.Receive(stream, err, func(m *v1alpha1.GraphResponse) error { show.AddGraph(g, m); return nil })
		for _, call := range g.GetCalls() {
			if err != nil || show.Name(call.GetCaller()) != app.String() || call.GetIn() != g.GetCluster() {
				continue
			}
			var one *v1alpha1.Decision
			one, err = v1alpha1.NewResolverClient(conn).Resolve(ctx, &v1alpha1.ResolveRequest{Caller: wire.App(app), App: call.GetCallee()})
			all, names = append(all, one), append(names, show.Name(call.GetCallee()))
		}
		return err
	})
	if err != nil || len(all) == 0 {
		return err
	}
	d.heading("lookups of " + app.String() + "; isthmus explain --from " + app.String() + " APP has more")
	return show.Lookups(d.screen, names, all)
}

// callers says who may call an app here.
func (d *description) callers(app catalog.App) error {
	who, err := callersNow(d.c, d.cmd, app, "", catalog.App{})
	if err != nil {
		return err
	}
	d.heading("callers of " + app.String())
	who.all = slices.DeleteFunc(who.all, func(call *v1alpha1.Call) bool { return call.GetRule() == "" && !show.Seen(call) })
	if len(who.all) == 0 && who.undeclared == 0 {
		show.Say(d.screen, "nobody may call it here, and nobody was seen to\n")
		return nil
	}
	return show.Callers(d.screen, who.all, who.undeclared)
}

// link has the link to a cluster.
func (d *description) link(cluster string) error {
	status, err := d.c.status(d.cmd)
	if err != nil {
		return err
	}
	return show.Peer(d.screen, status, cluster, time.Now())
}

// news has what is found in objects, and events that name something.
func (d *description) news(keys []catalog.Key, name string) error {
	var found *v1alpha1.AnalyzeResponse
	var events []*v1alpha1.Event
	err := d.c.ask(d.cmd, func(ctx context.Context, conn *client.Conn) (err error) {
		if found, err = v1alpha1.NewObjectsClient(conn).Analyze(ctx, &v1alpha1.AnalyzeRequest{}); err != nil {
			return err
		}
		stream, err := v1alpha1.NewInventoryClient(conn).Events(ctx, &v1alpha1.EventsRequest{SinceUnixMs: time.Now().Add(-d.since).UnixMilli()})
		return wire.Receive(stream, err, func(m *v1alpha1.EventsResponse) error {
			events = append(events, m.GetEvents()...)
			return nil
		})
	})
	if err != nil {
		return err
	}
	found.Findings = slices.DeleteFunc(found.GetFindings(), func(f *v1alpha1.Finding) bool {
		return !slices.Contains(keys, wire.KeyOf(f.GetKey()))
	})
	if len(found.GetFindings()) > 0 {
		found.Objects, found.LeftOut = uint32(len(keys)), 0
		show.Analyzed(found, nil)
		d.heading("findings")
		show.Analysis(d.screen, found)
	}
	events = slices.DeleteFunc(events, func(e *v1alpha1.Event) bool { return !mentions(e, name) })
	d.heading("events of the last " + strings.TrimSuffix(strings.TrimSuffix(d.since.String(), "0s"), "0m"))
	if len(events) == 0 {
		show.Say(d.screen, "none\n")
	}
	for _, e := range events {
		if err := show.EventLine(d.screen, e, time.Local); err != nil {
			return err
		}
	}
	return nil
}

// mentions tells whether an event has a name as a word.
func mentions(e *v1alpha1.Event, name string) bool {
	has := func(text string) bool {
		return slices.Contains(strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" ,;:()\"=", r) }), name)
	}
	return has(e.GetMessage()) || slices.ContainsFunc(e.GetFields(), func(f *v1alpha1.EventField) bool { return has(f.GetValue()) })
}
