package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newResolve(c *connection) *cobra.Command {
	return newLookup(c, &cobra.Command{
		Use:   "resolve --from CALLER APP",
		Short: "Look an app up as another app would",
		Long: `Look an app up as another app would, and print its address.

Both are namespace/app-id or app-id.namespace. Without a namespace the app is looked for in the
caller's, as daprd does. A refusal is printed with its reason, and the exit code is 1.`,
		Example: `  isthmus resolve --from shop/checkout orders
  isthmus resolve --from shop/checkout ledger.finance -o json`,
	}, func(d *v1alpha1.Decision) bool { return d.GetOutcome() != catalog.OK.String() }, func(cmd *cobra.Command, _ show.Lookup, d *v1alpha1.Decision) error {
		if d.GetOutcome() != catalog.OK.String() {
			return fmt.Errorf("%s: %s", d.GetOutcome(), d.GetReason())
		}
		fmt.Fprintln(cmd.OutOrStdout(), d.GetAddress())
		return nil
	})
}

func newExplain(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain --from CALLER APP | --to APP | --from CALLER --inbound APP | --from CALLER --actor TYPE/ID",
		Short: "Say why a lookup ends as it does",
		Long: `Look an app up as another app would, and say why it ended so: the rule that decided, and
for each route why it was or was not taken. A route on which this caller's calls fail has a fault: its
sidecars here are without mTLS, trust no root of that cluster, or report that they don't reach it, and
for how long. The exit code is 1 if the lookup is refused, or calls take a route with a fault.

With --probe the service connects to the endpoints that it found, as far as TLS, and tells the
results: at most 16 endpoints, 2 s each. It has its own certificate then, not the caller's.

A guest, such as a developer's laptop, takes some calls by a header. With --header name:value the
answer is for a call that has it.

Apps are namespace/app-id or app-id.namespace. Without a namespace the callee is looked for in the
caller's, as daprd does. With --from CLUSTER:NAMESPACE/APP the caller runs in another cluster. Then it says whether this
cluster exports the app to that caller, and what the gateway would do.

With --to it lists who may call an app here, with the object that lets each in. With --inbound it
says whether that app's guard lets the caller in. The exit code is 1 if nothing does.

With --actor it says which cluster a call of that actor goes to, and why.`,
		Example: `  isthmus explain --from shop/checkout orders
  isthmus explain --from shop/checkout orders --probe
  isthmus explain --from shop/checkout orders --header x-dev:anna
  isthmus explain --from west:shop/checkout orders
  isthmus explain --from shop/checkout ledger.finance -o yaml
  isthmus explain --to shop/orders
  isthmus explain --from shop/checkout --inbound shop/orders
  isthmus explain --from shop/checkout --actor Cart/42`,
	}
	cmd.Flags().StringArray("header", nil, "of the call, name:value; may be repeated")
	cmd.Flags().Bool("probe", false, "connect to what is found, as far as TLS")
	to := cmd.Flags().String("to", "", "list who may call this app, "+bothForms)
	inbound := cmd.Flags().String("inbound", "", "say whether this app's guard lets the caller in, "+bothForms)
	actor := cmd.Flags().String("actor", "", "say which cluster a call of this actor goes to, type or type/id")
	for _, flag := range []string{"to", "inbound"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, c.completeApp(slashed, true))
	}
	failed := func(d *v1alpha1.Decision) bool { return d.GetOutcome() != catalog.OK.String() || show.Failing(d) }
	newLookup(c, cmd, failed, func(cmd *cobra.Command, l show.Lookup, d *v1alpha1.Decision) error {
		return show.Explain(show.ScreenOf(cmd.OutOrStdout()), l.From(), l.App.String(), d)
	})
	check, lookup := cmd.Args, cmd.RunE
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *to+*inbound+*actor == "" {
			return check(cmd, args)
		}
		if *actor != "" && (*to+*inbound != "" || len(args) > 0 || cmd.Flags().Changed("probe")) {
			return misused(errors.New("--actor stands beside --from alone"))
		}
		if flags := cmd.Flags(); *to != "" && (flags.Changed("from") || *inbound != "") || *to+*inbound != "" && flags.Changed("probe") {
			return misused(errors.New("--to stands alone, and --inbound beside --from; --probe is for lookups"))
		}
		if len(args) > 0 {
			return misused(fmt.Errorf("unexpected %q beside --to or --inbound, which name the callee", args[0]))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		output := cmd.Flag("output").Value.(*format)
		switch {
		case *to != "":
			return explainCallers(c, cmd, *to, output)
		case *inbound != "":
			return explainInbound(c, cmd, cmd.Flag("from").Value.String(), *inbound, output)
		case *actor != "":
			return explainActor(c, cmd, cmd.Flag("from").Value.String(), *actor, output)
		}
		return lookup(cmd, args)
	}
	return cmd
}

// newLookup completes a command that makes one lookup and prints it for people. If the lookup has
// failed, the exit code is 1.
func newLookup(c *connection, cmd *cobra.Command, failed func(*v1alpha1.Decision) bool, print func(cmd *cobra.Command, l show.Lookup, d *v1alpha1.Decision) error) *cobra.Command {
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	from := cmd.Flags().String("from", "", "the calling app, "+bothForms+"; with cluster: before it, one in another cluster (required)")
	cmd.Args = arguments(cobra.ExactArgs(1))
	cmd.ValidArgsFunction = c.completeApp(dotted, false)
	_ = cmd.RegisterFlagCompletionFunc("from", c.completeApp(slashed, true))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l, err := show.ParseLookup(*from, args[0])
		if errors.Is(err, show.ErrNoNamespace) {
			_, err = c.flagApp(cmd, "from", *from)
		}
		if err != nil {
			return misused(err)
		}
		headers, err := headersOf(cmd)
		if err != nil {
			return misused(err)
		}
		probe, _ := cmd.Flags().GetBool("probe") // resolve has no such flag
		if probe && l.Cluster != "" {
			return misused(errors.New("--probe connects to what callers here find; leave the cluster out of --from"))
		}
		var d *v1alpha1.Decision
		err = c.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
			d, err = v1alpha1.NewResolverClient(conn).Resolve(ctx, &v1alpha1.ResolveRequest{
				Caller: wire.App(l.Caller), App: wire.App(l.App), Cluster: l.Cluster, Headers: headers,
			})
			if err != nil || !probe {
				return err
			}
			probed, err := v1alpha1.NewInventoryClient(conn).Probe(ctx, &v1alpha1.ProbeRequest{
				Caller: wire.App(l.Caller), App: wire.App(l.App),
			})
			show.AddProbes(d, probed)
			return err
		})
		if err != nil {
			return err
		}
		err = printAnswer(cmd, output.Format, "Decision", d, func(*show.Screen) error { return print(cmd, l, d) })
		if d.GetOutcome() != catalog.OK.String() {
			printHint(c, cmd, l, d)
		}
		if err == nil && failed(d) {
			err = errReported
		}
		return err
	}
	return cmd
}

// headersOf are the headers that a command names, if it has that flag.
func headersOf(cmd *cobra.Command) (all []*v1alpha1.HeaderValue, err error) {
	texts, _ := cmd.Flags().GetStringArray("header")
	for _, text := range texts {
		name, value, _ := strings.Cut(text, ":")
		h := catalog.HeaderValue{Name: strings.ToLower(strings.TrimSpace(name)), Value: strings.TrimSpace(value)}
		if err := h.Check(); err != nil {
			return nil, fmt.Errorf("--header %q: want name:value, such as x-dev:anna: %w", text, err)
		}
		all = append(all, &v1alpha1.HeaderValue{Name: h.Name, Value: h.Value})
	}
	return all, nil
}

// printHint says which apps are meant where a lookup has failed that names an app which is not there.
func printHint(c *connection, cmd *cobra.Command, l show.Lookup, d *v1alpha1.Decision) {
	if l.Cluster == "" {
		if near := nearApps(c, cmd, l.Caller); near != "" {
			show.Say(cmd.ErrOrStderr(), "no app %s is known; %s\n", l.Caller, near)
		}
	}
	if slices.ContainsFunc(d.GetNotes(), func(note string) bool { return strings.Contains(note, " runs here") }) {
		return // it says so itself
	}
	if near := nearApps(c, cmd, l.App); near != "" {
		show.Say(cmd.ErrOrStderr(), "no app %s is known; %s\n", l.App, near)
	}
}
