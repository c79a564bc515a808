package main

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// callers are who may call apps of this cluster and who has.
type callers struct {
	all        []*v1alpha1.Call
	undeclared uint32
	unobserved []string               // apps with the reason why their callers may be unseen
	blind      map[catalog.App]string // the same by app, also those that other replicas know
	elsewhere  int                    // apps whose sidecars report to replicas that do not answer
	missing    []*v1alpha1.MissingReplica
}

// callersNow asks who may call whom and who has. cluster is that of the caller, where both are named.
func callersNow(c *connection, cmd *cobra.Command, callee catalog.App, cluster string, caller catalog.App) (who callers, err error) {
	req := &v1alpha1.CallsRequest{Callee: wire.App(callee), Caller: wire.App(caller), Cluster: cluster}
	err = askEach(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Calls, req, func(m *v1alpha1.CallsResponse) error {
		who.missing = append(who.missing, m.GetMissing()...)
		for _, callee := range m.GetCallees() {
			who.undeclared = callee.GetUndeclared()
			who.all = append(who.all, show.CallsOf(callee)...)
			if why := callee.GetNotObserved(); why != "" {
				who.unobserved = append(who.unobserved, show.Name(callee.GetApp())+": "+why)
				who.unseen(callee, why)
			}
			if callee.GetElsewhere() {
				who.elsewhere++
				who.unseen(callee, "its sidecars are at another replica")
			}
		}
		return nil
	})
	return who, err
}

// unseen says why callers of an app may not be among all.
func (who *callers) unseen(callee *v1alpha1.Callee, why string) {
	if who.blind == nil {
		who.blind = map[catalog.App]string{}
	}
	who.blind[wire.AppOf(callee.GetApp())] = why
}

// mostUnobserved bounds the apps that are named.
const mostUnobserved = 20

// writeUnobserved names the apps whose callers may be unseen.
func (who *callers) writeUnobserved(w io.Writer) {
	for _, line := range who.unobserved[:min(len(who.unobserved), mostUnobserved)] {
		show.Say(w, "not observed: %s\n", catalog.Printable(line))
	}
	if more := len(who.unobserved) - mostUnobserved; more > 0 {
		show.Say(w, "not observed: %d more apps\n", more)
	}
	if who.elsewhere > 0 {
		show.Say(w, "%d apps have their sidecars at other replicas, whose calls this answer lacks\n", who.elsewhere)
	}
	_ = show.Missing(w, who.missing)
}

func newCalls(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "calls [NAMESPACE/APP]",
		Short: "List who calls the apps of this cluster, declared and seen",
		Long: `List the callers of this cluster's apps, or of one app: those that an object declares, and those
that the guards of the callees have seen. A service knows the calls that sidecars have told it of
since it started. Where it has replicas, the one that answers asks the others too, and says which of
them do not answer.

OBSERVED calls were let in by a guard that only observes; one that enforces refuses them. LAST is "not
observed" where no guard would see a call.`,
		Example: `  isthmus calls
  isthmus calls shop/orders
  isthmus calls --from shop/checkout
  isthmus calls --undeclared`,
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	c.flags(cmd, toRead)
	cmd.ValidArgsFunction = c.completeApp(slashed, false)
	output, filter := outputFlag(cmd), c.appFilter(cmd)
	from := cmd.Flags().String("from", "", "only calls by this app, "+bothForms)
	unseen := cmd.Flags().Bool("unseen", false, "only callers that are declared and were never seen")
	undeclared := cmd.Flags().Bool("undeclared", false, "only callers that were seen, and that no object declares")
	_ = cmd.RegisterFlagCompletionFunc("from", c.completeApp(slashed, true))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		app, err := filter(args)
		if err != nil {
			return err
		}
		caller, err := c.flagApp(cmd, "from", *from)
		if err != nil {
			return err
		}
		who, err := callersNow(c, cmd, app, "", caller)
		if err != nil {
			return err
		}
		all := slices.DeleteFunc(who.all, func(call *v1alpha1.Call) bool {
			return *unseen && (show.Seen(call) || !call.GetDeclared()) || *undeclared && (call.GetDeclared() || !show.Seen(call))
		})
		if output.Format != show.Table {
			return show.PrintList(cmd.OutOrStdout(), output.Format, "CallList", all)
		}
		if len(all) == 0 {
			printNone(c, cmd, "calls", cmp.Or(app, caller))
			who.writeUnobserved(cmd.ErrOrStderr())
			return nil
		}
		_ = show.Missing(cmd.ErrOrStderr(), who.missing)
		return show.Calls(show.ScreenOf(cmd.OutOrStdout()), all, time.Now())
	}
	return cmd
}

func newGuard(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "guard",
		Short: "Look at what the callees' guards do",
		Long:  "Look at what the guards of this cluster's apps do with callers.",
		Example: `  isthmus guard check
  isthmus guard check shop/orders`,
		Args: cobra.ArbitraryArgs,
		RunE: unknownCommand,
	}
	cmd.AddCommand(newGuardCheck(c))
	return cmd
}

func newGuardCheck(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [NAMESPACE/APP]",
		Short: "List the callers that enforcing would cut off",
		Long: `List the callers that have called an app of this cluster, and that nothing lets in now. A guard
that enforces refuses them. So ask this before guard: enforce, after as long a time of observing as
your apps need to make all their calls. The exit code is 1 if there are any, and also if no guard
sees the calls of an app: then nobody knows.`,
		Example: `  isthmus guard check
  isthmus guard check shop/orders -o json`,
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	c.flags(cmd, toRead)
	cmd.ValidArgsFunction = c.completeApp(slashed, false)
	output, filter := outputFlag(cmd), c.appFilter(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		app, err := filter(args)
		if err != nil {
			return err
		}
		who, err := callersNow(c, cmd, app, "", catalog.App{})
		if err != nil {
			return err
		}
		seen := 0
		for _, call := range who.all {
			if show.Seen(call) {
				seen++
			}
		}
		all := slices.DeleteFunc(who.all, func(call *v1alpha1.Call) bool { return !show.CutOff(call) })
		who.writeUnobserved(cmd.ErrOrStderr())
		switch {
		case output.Format != show.Table:
			err = show.PrintList(cmd.OutOrStdout(), output.Format, "CallList", all)
		case len(all) == 0 && len(who.unobserved) > 0:
			show.Say(cmd.OutOrStdout(), "of %d callers seen, enforcing would refuse none; %d apps are not observed\n", seen, len(who.unobserved))
		case len(all) == 0:
			show.Say(cmd.OutOrStdout(), "of %d callers seen, enforcing would refuse none\n", seen)
		default:
			err = show.Calls(show.ScreenOf(cmd.OutOrStdout()), all, time.Now())
			show.Say(cmd.ErrOrStderr(), "enforcing would refuse these %d of %d callers seen; isthmus suggest writes the objects that let them in\n", len(all), seen)
		}
		if err == nil && len(all)+len(who.unobserved) > 0 {
			err = errReported
		}
		return err
	}
	return cmd
}

// explainCallers is explain --to: who may call an app.
func explainCallers(c *connection, cmd *cobra.Command, callee string, output *format) error {
	app, err := c.flagApp(cmd, "to", callee)
	if err != nil {
		return err
	}
	who, err := callersNow(c, cmd, app, "", catalog.App{})
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(who.all, func(call *v1alpha1.Call) bool { return !call.GetDeclared() || call.GetRule() == "" })
	if output.Format != show.Table {
		return show.PrintList(cmd.OutOrStdout(), output.Format, "CallList", all)
	}
	if len(all) == 0 && who.undeclared == 0 {
		show.Say(cmd.OutOrStdout(), "nobody may call %s here: no AppEndpoints holds it with a route here, and no AppExport allows another cluster\n", app)
		return nil
	}
	return show.Callers(show.ScreenOf(cmd.OutOrStdout()), all, who.undeclared)
}

// explainInbound is explain --from … --inbound: whether a callee's guard lets a caller in, and why.
func explainInbound(c *connection, cmd *cobra.Command, from, callee string, output *format) error {
	cluster, named := catalog.LocalCluster, from
	if before, rest, found := strings.Cut(from, ":"); found {
		cluster, named = before, rest
	}
	if named == "" {
		return misused(errors.New("--inbound wants --from: name the caller as " + bothForms + ", with cluster: before it for one in another cluster"))
	}
	caller, err := c.flagApp(cmd, "from", named)
	if err != nil {
		return err
	}
	app, err := c.flagApp(cmd, "inbound", callee)
	if err != nil {
		return err
	}
	who, err := callersNow(c, cmd, app, cluster, caller)
	if err != nil {
		return err
	}
	all := slices.DeleteFunc(who.all, func(call *v1alpha1.Call) bool { return call.GetCluster() != cluster || show.Caller(call) != caller })
	in := slices.ContainsFunc(all, func(call *v1alpha1.Call) bool { return call.GetRule() != "" })
	if output.Format != show.Table {
		err = show.PrintList(cmd.OutOrStdout(), output.Format, "CallList", all)
	} else {
		show.Inbound(cmd.OutOrStdout(), strings.TrimSuffix(from, named)+caller.String(), app.String(), all)
	}
	if err == nil && !in {
		err = errReported
	}
	return err
}
