package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// bothForms is how usage says that an app can be named.
const bothForms = "namespace/app-id or app-id.namespace"

// mostCompared bounds the apps that a name is compared with.
const mostCompared = 10_000

// app reads the app that an argument names. Where it is named without a namespace, the error says in
// which one it runs.
func (c *connection) app(cmd *cobra.Command, name string) (catalog.App, error) {
	app, err := show.ParseApp(name)
	if errors.Is(err, show.ErrNoNamespace) {
		err = hinted(err, nearApps(c, cmd, catalog.App{ID: name}))
	}
	return app, err
}

// flagApp reads the app that a flag names; the zero App if it is not set.
func (c *connection) flagApp(cmd *cobra.Command, flag, value string) (catalog.App, error) {
	if value == "" {
		return catalog.App{}, nil
	}
	app, err := c.app(cmd, value)
	if err != nil {
		err = misused(fmt.Errorf("--%s: %w", flag, err))
	}
	return app, err
}

// hinted adds a hint to an error, if there is one.
func hinted(err error, hint string) error {
	if hint == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, hint)
}

// nearApps says which app is meant by one that is not there; empty if it is there, if none is like it, or if
// the service does not tell. Without an app-id it is about the namespace.
func nearApps(c *connection, cmd *cobra.Command, app catalog.App) (hint string) {
	_ = c.askWithin(cmd, completeWithin, func(ctx context.Context, conn *client.Conn) error {
		known := map[catalog.App]bool{} // and whether it runs
		for _, req := range []*v1alpha1.AppsRequest{{Id: app.ID, Most: mostCompared}, {Most: mostCompared}} {
			stream, err := v1alpha1.NewInventoryClient(conn).Apps(ctx, req)
			err = wire.Receive(stream, err, func(m *v1alpha1.AppsResponse) error {
				for _, a := range m.GetApps() {
					known[catalog.App{Namespace: a.GetApp().GetNamespace(), ID: a.GetApp().GetId()}] = a.GetReady() > 0 || len(a.GetImports()) > 0
				}
				return nil
			})
			if err != nil {
				return err
			}
			if len(known) > 0 && app.ID != "" {
				break // some have that app-id
			}
		}
		hint = nearest(app, known)
		return nil
	})
	return hint
}

// nearest says which of the names that are known is meant by one that is not; they are apps, or
// objects. known tells of each whether it runs.
func nearest(name catalog.App, known map[catalog.App]bool) string {
	if _, there := known[name]; there {
		return ""
	}
	var namespaces, alike, inside []string
	runs := false
	for k, running := range known {
		if k.ID == name.ID {
			alike = append(alike, k.Namespace)
			runs = runs || running
		}
		if k.Namespace == name.Namespace || name.Namespace == "" {
			inside = append(inside, k.ID)
		}
		namespaces = append(namespaces, k.Namespace)
	}
	for _, list := range []*[]string{&namespaces, &alike, &inside} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	verb := map[bool]string{true: "runs", false: "is"}[runs]
	near, namespace := strict.Nearest(name.ID, inside), strict.Nearest(name.Namespace, namespaces)
	if namespace == name.Namespace {
		namespace = "" // there is no other
	}
	switch {
	case namespace == "" && (name.ID == "" || len(alike) == 0 && near == ""):
		return ""
	case name.ID == "" || len(alike) == 0 && near == "":
		return fmt.Sprintf("did you mean namespace %s?", namespace)
	case len(alike) == 1:
		return fmt.Sprintf("%s %s in %s: write %s/%[1]s", name.ID, verb, alike[0], alike[0])
	case len(alike) > 1:
		return fmt.Sprintf("%s %s in %s; write one of them before it, as %s/%[1]s", name.ID, verb, strings.Join(alike, ", "), alike[0])
	case name.Namespace == "":
		for k := range known {
			if k.ID == near {
				name.Namespace = max(name.Namespace, k.Namespace) // one of them, always the same
			}
		}
	}
	return fmt.Sprintf("did you mean %s?", catalog.Key{Namespace: name.Namespace, Name: near}.NamespacedName())
}

// printNone says that there is nothing of a sort, and which app is meant by one that is not there.
func printNone(c *connection, cmd *cobra.Command, what string, app catalog.App) {
	text := "no " + what
	if app != (catalog.App{}) {
		if hint := nearApps(c, cmd, app); hint != "" {
			text += "; " + hint
		}
	}
	fmt.Fprintln(cmd.ErrOrStderr(), text)
}

// missing adds to the error of a call about an object that is not there which one is meant.
func missing(ctx context.Context, conn *client.Conn, key catalog.Key, err error) error {
	if status.Code(err) != codes.NotFound {
		return err
	}
	answer, other := v1alpha1.NewObjectsClient(conn).Get(ctx, &v1alpha1.GetRequest{Key: wire.Key(catalog.Key{Kind: key.Kind})})
	if other != nil {
		return err
	}
	known := map[catalog.App]bool{}
	for _, o := range answer.GetObjects() {
		known[catalog.App{Namespace: o.GetKey().GetNamespace(), ID: o.GetKey().GetName()}] = false
	}
	hint := nearest(catalog.App{Namespace: key.Namespace, ID: key.Name}, known)
	if hint == "" {
		return err
	}
	return status.Errorf(codes.NotFound, "%s; %s", status.Convert(err).Message(), hint)
}

// appFilter adds the flags that narrow a list to a namespace, and returns what reads them and the
// argument. The app-id is empty for all of a namespace.
func (c *connection) appFilter(cmd *cobra.Command) func(args []string) (catalog.App, error) {
	namespace := c.namespaceFlags(cmd, "apps")
	return func(args []string) (catalog.App, error) {
		in, err := namespace()
		if err != nil || len(args) == 0 {
			return catalog.App{Namespace: in}, err
		}
		app, err := show.ParseApp(args[0])
		switch {
		case errors.Is(err, show.ErrNoNamespace) && in != "":
			app = catalog.App{Namespace: in, ID: args[0]}
			return app, misused(app.Check())
		case errors.Is(err, show.ErrNoNamespace):
			_, err = c.app(cmd, args[0])
		case err == nil && in != "" && in != app.Namespace:
			err = fmt.Errorf("%q is not in namespace %s; leave -n out", args[0], in)
		}
		return app, misused(err)
	}
}

// namespaceFlags adds -n and -A to a command that lists, and returns what reads them: empty for all.
func (c *connection) namespaceFlags(cmd *cobra.Command, what string) func() (string, error) {
	namespace := c.namespaceFlag(cmd, "only "+what+" of this namespace")
	all := cmd.Flags().BoolP("all-namespaces", "A", false, what+" of all namespaces, as without -n")
	return func() (string, error) {
		if *all && *namespace != "" {
			return "", misused(errors.New("-n and -A exclude each other; keep one"))
		}
		return *namespace, nil
	}
}

// namespaceFlag adds -n to a command.
func (c *connection) namespaceFlag(cmd *cobra.Command, usage string) *string {
	namespace := cmd.Flags().StringP("namespace", "n", "", usage)
	_ = cmd.RegisterFlagCompletionFunc("namespace", c.completeApp((*v1alpha1.App).GetNamespace, true))
	return namespace
}
