package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// forever is longer than anybody watches.
const forever = 10_000 * time.Hour

func newEvents(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what has happened lately",
		Long: `Show the latest events, the oldest first: objects that were written and by whom, or past the
service; leases that ended and came back, damped peers, gateways that are not reached; apps without
a ready instance; trouble of stores and of sources; refusals; sidecars that came and went;
certificates. A service keeps its newest 5,000 events until it stops, the most frequent kinds for less
long; with replicas, those of the replica that answers. Events have no secrets.

With --watch it goes on until you end it. JSON is then one object in a line.`,
		Example: `  isthmus events
  isthmus events --since 10m --warnings
  isthmus events --since 10m -w`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	since := cmd.Flags().Duration("since", time.Hour, "how far to look back, such as 10m; 0 for all that is kept")
	follow := cmd.Flags().BoolP("watch", "w", false, "go on with those to come")
	warnings := cmd.Flags().Bool("warnings", false, "only warnings and errors")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *since < 0 {
			return misused(fmt.Errorf("--since %s: want a time that is not negative, such as 10m", *since))
		}
		req := &v1alpha1.EventsRequest{Follow: *follow}
		if *since > 0 {
			req.SinceUnixMs = time.Now().Add(-*since).UnixMilli()
		}
		out, all := cmd.OutOrStdout(), []*v1alpha1.Event{}
		screen := show.ScreenOf(out)
		take := func(e *v1alpha1.Event) error {
			switch {
			case *warnings && e.GetLevel() == "INFO":
				return nil
			case output.Format == show.Table:
				return show.EventLine(screen, e, time.Local)
			case *follow:
				return show.PrintLine(out, output.Format, "Event", e)
			}
			all = append(all, e)
			return nil
		}
		if *follow {
			if err := output.lines(); err != nil {
				return err
			}
			if _, err := c.status(cmd); err != nil { // within --timeout, which events to come are not
				return err
			}
			if err := cmd.Flags().Set("timeout", forever.String()); err != nil {
				return err
			}
		}
		err := askEach(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Events, req, func(m *v1alpha1.EventsResponse) error {
			for _, e := range m.GetEvents() {
				if err := take(e); err != nil {
					return err
				}
			}
			return nil
		})
		if *follow && cmd.Context().Err() != nil {
			return nil // that is how a watch ends
		}
		if err != nil || output.Format == show.Table {
			return err
		}
		return show.PrintList(out, output.Format, "EventList", all)
	}
	return cmd
}
