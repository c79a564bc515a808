package main

import (
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// topFlags are what top is to show.
type topFlags struct {
	from, to, cluster, by, sort string
	window, interval            time.Duration
	most                        int
	once                        bool
}

func newTop(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "top [NAMESPACE/APP]",
		Short: "Show the calls of now: how many, how many go well, and how long they take",
		Long: `Show the calls of now, by caller, callee and cluster: calls a second, how many of them go well,
latencies, and what fails since when. With an app, only its own calls and those to it.

The sidecars of the callers count them, and tell the service every five seconds. Calls of sidecars
without Isthmus are counted by the guard of the callee; those of a sidecar that calls the other way are
not seen at all. SUCCESS leaves out calls that the caller gave up within a second. Answers that say that
the request is at fault, such as HTTP 404, count as good. Latencies are until the first answer. SHARE is
how much of a caller's calls to a callee goes to the cluster, beside what weights and readiness make of
it. Where the service has replicas, the one that answers asks the others too, and says which of them
do not answer.

A terminal shows the newest figures again and again, until you end it. A file or a pipe gets them once.`,
		Example: `  isthmus top
  isthmus top shop/checkout
  isthmus top --by callee --sort success
  isthmus top --from shop/checkout --to shop/orders --window 1h --once
  isthmus top -o json`,
		Args: arguments(cobra.MaximumNArgs(1)),
	}
	c.flags(cmd, toRead)
	cmd.ValidArgsFunction = c.completeApp(slashed, false)
	output, filter := outputFlag(cmd), c.appFilter(cmd)
	var flags topFlags
	cmd.Flags().StringVar(&flags.from, "from", "", "only calls by this app, "+bothForms)
	cmd.Flags().StringVar(&flags.to, "to", "", "only calls to this app, "+bothForms)
	cmd.Flags().StringVar(&flags.cluster, "in", "", "only calls that go to this cluster")
	cmd.Flags().StringVar(&flags.by, "by", show.ByEdge, "sum up by "+strings.Join(show.Groupings(), ", "))
	cmd.Flags().StringVar(&flags.sort, "sort", show.SortRate, "begin with the highest of "+strings.Join(show.Sortings(), ", ")+"; of success with the lowest")
	cmd.Flags().DurationVar(&flags.window, "window", time.Minute, "how far back, 10s to 24h")
	cmd.Flags().DurationVar(&flags.interval, "interval", 2*time.Second, "how long to wait between two answers")
	cmd.Flags().IntVar(&flags.most, "most", 0, "how many lines at most; 0 for as many as the terminal has, or all")
	cmd.Flags().BoolVar(&flags.once, "once", false, "show the figures once")
	for _, name := range []string{"from", "to"} {
		_ = cmd.RegisterFlagCompletionFunc(name, c.completeApp(slashed, true))
	}
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(show.Groupings(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("sort", cobra.FixedCompletions(show.Sortings(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := filter(args)
		if err != nil {
			return err
		}
		if err := show.CheckTraffic(flags.by, flags.sort); err != nil {
			return misused(err)
		}
		req := &v1alpha1.TrafficRequest{Cluster: flags.cluster, WindowMs: uint64(max(0, flags.window).Milliseconds())}
		if req.Caller, err = c.trafficApp(cmd, "from", flags.from); err != nil {
			return err
		}
		if req.Callee, err = c.trafficApp(cmd, "to", flags.to); err != nil {
			return err
		}
		ask := func() (func(io.Writer) error, error) {
			answer, err := c.traffic(cmd, req)
			if err != nil {
				return nil, err
			}
			answer.Edges = show.GroupTraffic(show.TrafficOf(answer.GetEdges(), about), flags.by, flags.sort, answer)
			return func(w io.Writer) error {
				if output.Format != show.Table {
					return show.Print(w, output.Format, "Traffic", answer)
				}
				return show.Traffic(w, answer, flags.by, flags.most)
			}, nil
		}
		screen := show.ScreenOf(cmd.OutOrStdout())
		if screen.Terminal && !flags.once && output.Format == show.Table {
			return watch(cmd, output.Format, flags.interval, ask)
		}
		write, err := ask()
		if err != nil {
			return err
		}
		return write(screen)
	}
	return cmd
}

// trafficApp reads an app that a flag names; nil if it is not set.
func (c *connection) trafficApp(cmd *cobra.Command, flag, value string) (*v1alpha1.App, error) {
	app, err := c.flagApp(cmd, flag, value)
	if err != nil || app == (catalog.App{}) {
		return nil, err
	}
	return wire.App(app), nil
}

// traffic asks for calls.
func (c *connection) traffic(cmd *cobra.Command, req *v1alpha1.TrafficRequest) (answer *v1alpha1.TrafficResponse, err error) {
	answer = &v1alpha1.TrafficResponse{}
	err = askEach(c, cmd, v1alpha1.NewInventoryClient, v1alpha1.InventoryClient.Traffic, req, func(m *v1alpha1.TrafficResponse) error {
		answer.FromUnixMs, answer.ToUnixMs, answer.Matched = m.GetFromUnixMs(), m.GetToUnixMs(), answer.GetMatched()+m.GetMatched()
		answer.WholeFromUnixMs = max(answer.GetWholeFromUnixMs(), m.GetWholeFromUnixMs())
		answer.Missing = append(answer.GetMissing(), m.GetMissing()...)
		answer.Edges = append(answer.GetEdges(), m.GetEdges()...)
		return nil
	})
	return answer, err
}
