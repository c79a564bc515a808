package main

import (
	"cmp"
	"context"
	"errors"
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
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

func newShift(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shift NAMESPACE/APP --to CLUSTER=PERCENT",
		Short: "Move calls of an app to another route, in steps, as long as they go well",
		Long: `Move calls of an app to the route to a cluster, until it has so much of the calls of its priority. The
other routes of that priority share the rest as they did. It writes the weights of all selections that
have such a route, or with --from of the one that the caller follows.

With --step it goes in steps, and waits for --every after each. With --while it looks at what callers'
sidecars say of their calls to that cluster. If the bounds do not hold, it writes the weights that it
began with, and exits with 1. If no calls are seen, it stops where it is. There are bounds of success,
and of the latencies p50, p95 and p99.

A selection that somebody else changes meanwhile is not written over: it stops. If you interrupt it,
the weights stay. In both cases it says how to go back. With 100% the other routes take no calls, not
even if the cluster fails: for that, give them a later priority.`,
		Example: `  isthmus shift shop/orders --to east=20%
  isthmus shift shop/orders --to east=100% --step 10% --every 5m --while 'success>99%'
  isthmus shift shop/orders --to east=50% --from shop/checkout --dry-run`,
		Args: arguments(cobra.ExactArgs(1)),
	}
	c.flags(cmd, toWrite)
	cmd.ValidArgsFunction = c.completeApp(slashed, false)
	s := &shifting{connection: c}
	f := cmd.Flags()
	to := f.String("to", "", "the cluster, and its part of the calls: east=20%, or local=100%")
	step := f.String("step", "", "how much of the calls to move at a time, such as 10%; all at once by default")
	from := f.String("from", "", "only in the selection of this caller, "+bothForms)
	while := f.String("while", "", "what must hold, such as 'success>99%,p99<300ms'")
	f.DurationVar(&s.every, "every", 5*time.Minute, "how long to wait after each step")
	f.BoolVar(&s.dryRun, "dry-run", false, "show the steps, and write nothing")
	_ = cmd.RegisterFlagCompletionFunc("from", c.completeApp(slashed, true))
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		if s.callee, err = c.app(cmd, args[0]); err != nil {
			return misused(err)
		}
		if s.caller, err = c.flagApp(cmd, "from", *from); err != nil {
			return err
		}
		if err := s.read(*to, *step, *while); err != nil {
			return misused(err)
		}
		return s.run(cmd)
	}
	return cmd
}

// shifting is one run of the command.
type shifting struct {
	*connection
	callee, caller catalog.App // caller is zero for all
	cluster        string      // as routes have it
	own            string      // the name of this cluster
	target, step   basisPoints
	every          time.Duration
	while          []bound
	dryRun         bool

	all []*shiftedObject
}

// shiftedObject is a selection whose weights are moved.
type shiftedObject struct {
	began *catalog.AppEndpoints
	now   *catalog.AppEndpoints // as it was written last
	moved []movedRoute
}

// movedRoute is a route to the cluster. A selection has several if it has the callee by several names.
type movedRoute struct {
	endpoint, route int
	from            basisPoints // the part that it began with
}

// Calls are known from a slot of the service's history on: the first that a step has alone begins up
// to one later, and ends another one later.
const (
	slot       = 10 * time.Second
	leastEvery = 2 * slot
	lookEvery  = 2 * time.Second
	fewCalls   = 20 // fewer don't end a step before its time
)

func (s *shifting) read(to, step, while string) (err error) {
	cluster, percent, ok := strings.Cut(to, "=")
	if !ok || cluster == "" {
		return errors.New("--to: want a cluster and its part of the calls, such as --to east=20%")
	}
	s.cluster = cluster
	if s.target, err = parsePercent("--to", percent); err != nil {
		return err
	}
	if s.step = whole; step != "" {
		if s.step, err = parsePercent("--step", step); err == nil && s.step == 0 {
			err = errors.New("--step: 0% leads nowhere")
		}
		if err != nil {
			return err
		}
	}
	if s.while, err = parseBounds(while); err != nil {
		return err
	}
	if len(s.while) > 0 && s.every < leastEvery {
		return fmt.Errorf("--every %s: with --while, want %s or more, since figures come every %s", s.every, leastEvery, slot)
	}
	return nil
}

func (s *shifting) run(cmd *cobra.Command) error {
	err := s.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
		if err = announce(ctx, cmd, conn); err == nil {
			s.own, err = conn.ClusterName(ctx)
		}
		return err
	})
	if err == nil {
		err = s.find(cmd)
	}
	if err != nil {
		return err
	}
	steps := s.steps()
	if steps == 0 {
		s.say(cmd, "nothing to do: %s has %s of the calls already\n", s.cluster, s.target)
		return nil
	}
	for k := 1; k <= steps; k++ {
		next := make([]*catalog.AppEndpoints, len(s.all))
		for i, o := range s.all {
			next[i] = o.after(k, s.target, s.step)
			for _, m := range o.moved {
				e := &next[i].Endpoints[m.endpoint]
				s.say(cmd, "step %d of %d: %s: %s of the calls to %s go to %s, weights %s\n",
					k, steps, next[i].Key(), m.from.toward(s.target, s.step, k), cmp.Or(e.As, s.callee.String()), s.cluster, weights(e.Routes))
			}
		}
		if err := s.write(cmd, next); err != nil {
			return fmt.Errorf("%w\n%s", err, s.stays())
		}
		if s.dryRun {
			continue
		}
		if k == steps && (len(s.while) == 0 || s.target == 0) {
			break
		}
		if err := s.wait(cmd, time.Now()); err != nil {
			return err
		}
	}
	if s.dryRun {
		s.say(cmd, "a dry run: nothing is written\n")
	}
	return nil
}

// find finds the selections, and the part that the route has in each.
func (s *shifting) find(cmd *cobra.Command) error {
	objects, err := s.get(cmd, catalog.Key{Kind: catalog.KindAppEndpoints})
	if err != nil {
		return err
	}
	if s.caller != (catalog.App{}) {
		for _, name := range slices.Backward(selectionsOf(s.caller)) { // the first that there is counts
			if i := slices.IndexFunc(objects, func(o show.Object) bool { return o.Key() == (&catalog.AppEndpoints{App: name}).Key() }); i >= 0 {
				objects = objects[i : i+1 : i+1]
			}
		}
	}
	for _, o := range objects {
		selection, ok := o.Object.(*catalog.AppEndpoints)
		if !ok {
			continue
		}
		one := &shiftedObject{began: selection, now: selection}
		for e := range selection.Endpoints {
			routes := selection.Endpoints[e].Routes
			r := slices.IndexFunc(routes, func(r catalog.RouteSpec) bool { return s.named(r.Cluster) == s.named(s.cluster) })
			if selection.Endpoints[e].App != s.callee || r < 0 {
				continue
			}
			part, others := partOf(routes, r)
			if others == nil {
				return fmt.Errorf("%s: no other route to %s has the priority of the one to %s; add one, with weight 0 if it is to take no calls yet", o.Key(), s.callee, s.cluster)
			}
			one.moved = append(one.moved, movedRoute{e, r, part})
		}
		if len(one.moved) == 0 {
			continue
		}
		if strings.HasPrefix(o.Stored, "from ") {
			return fmt.Errorf("%s is derived %s; change the weights there", o.Key(), o.Stored)
		}
		s.all = append(s.all, one)
	}
	if len(s.all) == 0 {
		return fmt.Errorf("no selection has a route to %s in %s; add one to spec.endpoints[].routes, with weight 0 if it is to take no calls yet", s.callee, s.cluster)
	}
	return nil
}

// named is the name of a cluster that a route names.
func (s *shifting) named(cluster string) string {
	if cluster == catalog.LocalCluster {
		return s.own
	}
	return cluster
}

// steps is how many there are to the target.
func (s *shifting) steps() (most int) {
	for _, o := range s.all {
		for _, m := range o.moved {
			far := max(m.from, s.target) - min(m.from, s.target)
			most = max(most, int((far+s.step-1)/s.step))
		}
	}
	return most
}

// after is the object after so many steps.
func (o *shiftedObject) after(steps int, target, step basisPoints) *catalog.AppEndpoints {
	next := *o.began
	next.Endpoints = slices.Clone(next.Endpoints)
	for _, m := range o.moved {
		e := &next.Endpoints[m.endpoint]
		e.Routes = shifted(e.Routes, m.route, m.from.toward(target, step, steps))
	}
	return &next
}

// errChanged is the error if somebody else has changed a selection.
var errChanged = errors.New("was changed by somebody else meanwhile, and is not written over")

// write writes the selections, if nobody else has changed one of them.
func (s *shifting) write(cmd *cobra.Command, next []*catalog.AppEndpoints) error {
	req := &v1alpha1.ApplyRequest{DryRun: s.dryRun}
	for i, o := range s.all {
		held, err := s.get(cmd, o.now.Key())
		if err != nil {
			return err
		}
		if len(held) != 1 || held[0].Refused != "" || string(api.EncodeJSON(held[0].Object)) != string(api.EncodeJSON(o.now)) {
			return fmt.Errorf("%s %w", o.now.Key(), errChanged)
		}
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: api.EncodeJSON(next[i]), IfRevision: held[0].Revision})
	}
	_, err := askFor(s.connection, cmd, v1alpha1.NewObjectsClient, v1alpha1.ObjectsClient.Apply, req)
	if errors.Is(err, client.ErrConflict) {
		return fmt.Errorf("a selection %w: %w", errChanged, err)
	}
	if err == nil && !s.dryRun {
		for i, o := range s.all {
			o.now = next[i]
		}
	}
	return err
}

// wait waits until the next step is due, as long as the signals hold.
func (s *shifting) wait(cmd *cobra.Command, since time.Time) error {
	var seen traffic.Counts
	for {
		left := s.every - time.Since(since)
		if left <= 0 {
			break
		}
		if !live.Sleep(cmd.Context(), min(left, lookEvery)) {
			return errors.New("interrupted\n" + s.stays())
		}
		if len(s.while) == 0 {
			continue
		}
		now, err := s.look(cmd, since)
		if err != nil {
			if cmd.Context().Err() == nil {
				show.Say(cmd.ErrOrStderr(), "the service does not tell of calls: %s\n", show.Lines(err))
			}
			continue
		}
		if seen = now; seen.Calls() < fewCalls {
			continue // until the time is over
		}
		if broken := firstBroken(s.while, &seen); broken != "" {
			return s.back(cmd, fmt.Sprintf("%s, so %s does not hold", s.told(&seen), broken))
		}
	}
	switch {
	case len(s.while) == 0:
		return nil
	case seen.Calls() == 0:
		return fmt.Errorf("no calls to %s in %s were seen within %s, so nobody knows how they go\n%s", s.callee, s.cluster, s.every, s.stays())
	}
	if broken := firstBroken(s.while, &seen); broken != "" { // by few calls
		return s.back(cmd, fmt.Sprintf("%s, so %s does not hold", s.told(&seen), broken))
	}
	s.say(cmd, "  %s\n", s.told(&seen))
	return nil
}

// look reads what callers' sidecars say of their calls to the cluster, and of those that got to none.
func (s *shifting) look(cmd *cobra.Command, since time.Time) (seen traffic.Counts, err error) {
	window := (time.Since(since) - slot).Truncate(slot)
	if window < slot {
		return seen, nil
	}
	req := &v1alpha1.TrafficRequest{Callee: wire.App(s.callee), WindowMs: uint64(min(window, 24*time.Hour).Milliseconds())}
	if s.caller != (catalog.App{}) {
		req.Caller = wire.App(s.caller)
	}
	answer, err := s.traffic(cmd, req)
	if err != nil {
		return seen, err
	}
	for _, e := range answer.GetEdges() {
		if e.GetByCallee() || e.GetCluster() != "" && e.GetCluster() != s.named(s.cluster) {
			continue
		}
		counts, err := traffic.FromWire(e.GetTraffic())
		if err != nil {
			return seen, err
		}
		seen.Add(&counts)
	}
	return seen, show.Missing(cmd.ErrOrStderr(), answer.GetMissing())
}

// told is what was seen, for people.
func (s *shifting) told(seen *traffic.Counts) string {
	e := &v1alpha1.TrafficEdge{}
	seen.SumUp(e, 0)
	return fmt.Sprintf("%d calls to %s: success %s, p50 %s, p99 %s", seen.Calls(), s.cluster, show.Success(e), show.Milliseconds(e.GetP50Ms()), show.Milliseconds(e.GetP99Ms()))
}

// back writes the weights that there were at the beginning. Its error says why.
func (s *shifting) back(cmd *cobra.Command, why string) error {
	began := make([]*catalog.AppEndpoints, len(s.all))
	for i, o := range s.all {
		began[i] = o.began
	}
	if err := s.write(cmd, began); err != nil {
		return fmt.Errorf("%s, and the weights can't be set back: %w\n%s", why, err, s.stays())
	}
	return fmt.Errorf("%s: the weights are set back to what they were", why)
}

// stays says where the weights are, and how to go back.
func (s *shifting) stays() string {
	var b strings.Builder
	b.WriteString("the weights stay as they are")
	for _, o := range s.all {
		for _, m := range o.moved {
			fmt.Fprintf(&b, "; in %s they were %s", o.began.Key(), weights(o.began.Endpoints[m.endpoint].Routes))
		}
	}
	command := fmt.Sprintf("isthmus shift %s --to %s=%s", s.callee, s.cluster, strings.ReplaceAll(s.all[0].moved[0].from.String(), " ", ""))
	if s.caller != (catalog.App{}) {
		command += " --from " + s.caller.String()
	}
	return b.String() + "; go back by: " + command
}

func (s *shifting) say(cmd *cobra.Command, format string, args ...any) {
	show.Say(cmd.OutOrStdout(), format, args...)
}
