package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newTap(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tap",
		Short: "Show single calls as they end",
		Long: `Show single calls as they end, at the caller and at the callee, until you end it: when, from where to
where, by which instance or gateway, how the call ended, how long it took until the first answer, how
many attempts that took, and the trace. Nothing of what a call carries is told.

A call that did not go by its first choice says why, as the caller's sidecar knows it: "after" has each
attempt before the last, and how it ended; "not" has a cluster that takes no calls or few, or instances
there that take none, and the reason.

Name the caller, the callee or both. Sidecars tell of so many calls a second each, and how many they
leave out. They tell of none once the command has ended. An event names who looks. In Kubernetes, RBAC
must allow the verb tap. Where the service has replicas, each tells of its own sidecars.`,
		Example: `  isthmus tap --from shop/checkout
  isthmus tap --from shop/checkout --to shop/orders
  isthmus tap --to shop/orders --per-second 50 -o json`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	from := cmd.Flags().String("from", "", "only calls by this app, "+bothForms)
	to := cmd.Flags().String("to", "", "only calls to this app, "+bothForms)
	rate := cmd.Flags().Uint32("per-second", 20, "how many calls a second each sidecar tells of, up to 100")
	for _, name := range []string{"from", "to"} {
		_ = cmd.RegisterFlagCompletionFunc(name, c.completeApp(slashed, true))
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		req := &v1alpha1.TapRequest{PerSecond: *rate}
		if req.Caller, err = c.trafficApp(cmd, "from", *from); err != nil {
			return err
		}
		if req.Callee, err = c.trafficApp(cmd, "to", *to); err != nil {
			return err
		}
		switch {
		case req.Caller == nil && req.Callee == nil:
			return misused(errors.New("name a caller by --from, a callee by --to, or both: the calls of all apps are too many to look at"))
		case output.Format == show.YAML:
			return misused(errors.New("-o yaml has no end to write; use -o json, which has an object in each line"))
		}
		if _, err := c.status(cmd); err != nil { // within --timeout, which calls to come are not
			return err
		}
		if err := cmd.Flags().Set("timeout", forever.String()); err != nil {
			return err
		}
		screen := show.ScreenOf(cmd.OutOrStdout())
		first := true
		err = askEach(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Tap, req, func(m *v1alpha1.TapResponse) error {
			if first {
				first = false
				return show.TapBegins(cmd.ErrOrStderr(), m)
			}
			if output.Format != show.Table {
				return show.PrintLine(screen, output.Format, "Tap", m)
			}
			return show.Tap(screen, m, time.Local)
		})
		if cmd.Context().Err() != nil {
			return nil // that is how it ends
		}
		return err
	}
	return cmd
}
