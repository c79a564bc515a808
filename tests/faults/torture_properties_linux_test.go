package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// ordealCaller is a caller and how many of its calls have been looked at.
type ordealCaller struct {
	*caller
	in    *cluster
	never bool // no rule has ever allowed its calls
	seen  int
}

// reasons are how calls fail that may: refused in one of the five ways, or not answered. What is
// none of these breaks a property.
var reasons = []struct {
	name string
	text *regexp.Regexp
}{
	{"denied", regexp.MustCompile(`\bdenied: `)},
	{"not found", regexp.MustCompile(`\bnot found: `)},
	{"unavailable", regexp.MustCompile(`\bunavailable: `)},
	{"stale", regexp.MustCompile(`\bstale: `)},
	{"not ready", regexp.MustCompile(`\bnot ready: `)},
	{"nothing is connected", regexp.MustCompile(`none of its endpoints is connected`)},
	{"not answered in time", regexp.MustCompile(`(?i)deadline ?exceeded|context canceled`)},
	{"cut off", regexp.MustCompile(`connection reset|EOF|error reading from server|transport is closing|the client connection is closing|keepalive ping failed`)},
	{ownAway, regexp.MustCompile(`dial tcp 127\.0\.0\.1|connect: connection refused`)},
}

const ownAway = "own sidecar is away"

// lookedAgain is how long a client of gRPC that was refused for as long as a blow lasts waits until it connects again.
const lookedAgain = 10 * time.Second

func reasonOf(err error) string {
	for _, r := range reasons {
		if r.text.MatchString(err.Error()) {
			return r.name
		}
	}
	return ""
}

// look looks at the calls since it last did.
func (o *ordeal) look() {
	o.t.Helper()
	for _, c := range o.callers {
		c.mu.Lock()
		latest := slices.Clone(calls(c.calls[c.seen:]))
		c.seen = len(c.calls)
		c.mu.Unlock()
		for _, made := range latest {
			o.judge(c, made)
		}
		slices.SortFunc(latest, func(a, b call) int { return a.ended.Compare(b.ended) })
		if !c.never && len(latest) > 0 && c.from.App.ID != "cart" { // whose calls are refused as its selection says
			gap, _ := latest.gap(latest[0].begun)
			o.LongestGap = max(o.LongestGap, gap)
		}
		o.Calls += len(latest)
	}
	o.Writes = 0
	for _, r := range o.registers {
		o.Writes += len(slices.DeleteFunc(slices.Clone(r.writes), func(w attempt) bool { return w.acked.IsZero() }))
		if err := r.check(); err != nil {
			o.breaks(kept, time.Now(), "%v", err)
		}
	}
}

// judge holds one call to the properties.
func (o *ordeal) judge(c *ordealCaller, made call) {
	o.t.Helper()
	count := 0
	for _, callee := range o.clusters() {
		for _, s := range callee.sidecars {
			had := s.Behind.Begun(made.method)
			if count += had.Count; had.Count == 0 {
				continue
			}
			if why := o.forbids(c, s, callee, made.begun, had.First); why != "" {
				o.breaks(onlyAllowed, made.begun, "%s of %s to %s reached %s at %s, and %s", made.kind, c.from.Name(), c.to, s.Name(), had.First.Format("15:04:05.000"), why)
			}
		}
	}
	if count > mostRuns[made.kind] {
		o.breaks(noneTwice, made.begun, "%s of %s to %s ran %d times; it ended at %s with %v", made.kind, c.from.Name(), c.to, count, made.ended.Format("15:04:05.000"), made.err)
	}
	if made.err == nil {
		return
	}
	reason := reasonOf(made.err)
	o.Refused[reason]++
	if why := o.untrue(c, made, reason); why != "" {
		o.breaks(trulySaid, made.begun, "%s of %s to %s, until %s: %s: %v", made.kind, c.from.Name(), c.to, made.ended.Format("15:04:05.000"), why, made.err)
	}
}

// forbids says why no rule of a time allows a call to an app in a cluster; empty if one does.
func (o *ordeal) forbids(c *ordealCaller, callee *sandbox.Sidecar, in *cluster, from, to time.Time) string {
	if callee.App.ID != c.to || c.never {
		return "that it never may"
	}
	selected, known := o.registers[0], o.registers[3]
	if values := selected.possible(from, to); c.from.App.ID == "cart" && !slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, in.name) }) {
		return fmt.Sprintf("its selection leads to %q", values)
	}
	for _, exported := range o.registers[1:3] {
		if exported.c == in && in != c.in && c.to == "orders" && !slices.Contains(exported.possible(from, to), "there") {
			return "it is not exported"
		}
	}
	if c.in == o.west && in == o.east && !slices.Contains(known.possible(from, to), "there") {
		return "the cluster is not known"
	}
	return ""
}

// untrue says why a call can't have failed for a reason; empty if it can.
func (o *ordeal) untrue(c *ordealCaller, made call, reason string) string {
	switch {
	case reason == "":
		return "a reason that is not stated"
	case !c.never && !o.calm.IsZero() && made.begun.After(o.calm) && o.watch.Longest(o.calm) < disturbing:
		return "nothing is at fault"
	case reason == ownAway && !slices.ContainsFunc(o.struck[c.from.Name()], func(s span) bool { return s.from.Before(made.ended) && s.to.Add(lookedAgain).After(made.begun) }):
		return "its own sidecar was not at fault"
	case reason == "denied" && !c.never && (c.from.App.ID != "cart" || !slices.Contains(o.registers[0].possible(made.begun, made.ended), "without orders")):
		return "its selection has held the app all the time"
	case reason == "not found" && !c.never:
		return "the app is selected"
	}
	return ""
}

// quiet waits until all calls are answered and then until each cluster says that all is well. Clusters
// that have just started may take longer.
func (o *ordeal) quiet(longer time.Duration) {
	o.t.Helper()
	begun := time.Now()
	for _, step := range []struct {
		limit time.Duration
		took  *time.Duration
		well  func() error
	}{{longer + recovered, &o.Answered, o.answered}, {longer + cleared, &o.Clean, o.clean}} {
		err := step.well()
		for ; err != nil && time.Since(begun) < step.limit; err = step.well() {
			time.Sleep(500 * time.Millisecond)
		}
		if o.calm.IsZero() || o.calm.Before(begun) {
			o.calm = time.Now()
		}
		if *step.took = max(*step.took, time.Since(begun)); err != nil {
			o.breaks(allGreen, time.Now(), "after %s: %v", round(time.Since(begun)), err)
		}
	}
}

// answered is which of the latest calls were not.
func (o *ordeal) answered() error {
	var errs []error
	for _, c := range o.callers {
		if latest := of(c.caller).since(time.Now().Add(-window)); !c.never && (len(latest.failed()) > 0 || len(latest) == 0) {
			errs = append(errs, fmt.Errorf("%d of %d calls of %s to %s fail:\n%s", len(latest.failed()), len(latest), c.from.Name(), c.to, latest.reasons()))
		}
	}
	return errors.Join(errs...)
}

// clean is what status and check of each service find.
func (o *ordeal) clean() error {
	var errs []error
	for _, c := range o.clusters() {
		for _, s := range c.services {
			for _, args := range [][]string{{"status", "--exit-code"}, {"check"}} {
				_, err := c.isthmus(meshtest.Within(o.t, meshtest.Attempt), "", append(args, "--server", s.Resolver)...)
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// usage is what a process holds.
type usage struct{ Descriptors, Resident, Goroutines int }

// used is what a process holds now. Only services say how many goroutines they have.
func (c *cluster) used(p *sandbox.Process, admin string) (u usage, err error) {
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	if err != nil {
		return u, err
	}
	u.Descriptors = len(files)
	memory, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.PID()))
	if err != nil {
		return u, err
	}
	if u.Resident, err = strconv.Atoi(strings.Fields(string(memory))[1]); err != nil || admin == "" {
		return u, err
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.place.Dial(ctx, network, address)
	}}
	defer transport.CloseIdleConnections()
	answer, err := (&http.Client{Transport: transport, Timeout: meshtest.Attempt}).Get("http://" + admin + "/metrics")
	if err != nil {
		return u, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if found := goroutines.FindSubmatch(text); err == nil && found != nil {
		u.Goroutines, err = strconv.Atoi(string(found[1]))
	}
	return u, err
}

var goroutines = regexp.MustCompile(`(?m)^go_goroutines (\d+)`)

// use holds what processes use after a round to what they used after the first, which knows every
// kind of state: half as much again, and what calls take. Of connections these are the 64 that
// a caller's client keeps, once so many calls have hung.
func (o *ordeal) use() {
	o.t.Helper()
	first := o.base == nil
	if first {
		o.base = map[string]usage{}
	}
	for _, c := range o.clusters() {
		admins := map[*sandbox.Process]string{}
		for _, s := range c.services {
			admins[s.Process] = s.Admin
		}
		for _, p := range c.processes() {
			var now usage
			err := errors.New("not asked")
			for end := time.Now().Add(recovered); err != nil && time.Now().Before(end); time.Sleep(time.Second) {
				if now, err = c.used(p, admins[p]); err == nil && !first {
					err = o.base[p.Name()].exceeded(now)
				}
			}
			if first {
				o.base[p.Name()] = now
			}
			if err != nil {
				o.breaks(comesBack, time.Now(), "%s: %v", p.Name(), err)
			}
		}
	}
}

func (u usage) exceeded(now usage) error {
	if now.Descriptors > u.Descriptors*3/2+90 || now.Resident > u.Resident*3/2+20_000 || now.Goroutines > u.Goroutines*3/2+50 {
		return fmt.Errorf("descriptors, pages of memory and goroutines were %v after the first round and are %v", u, now)
	}
	return nil
}
