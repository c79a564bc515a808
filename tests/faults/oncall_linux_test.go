package faults

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/cookiejar"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// onCall is how long TestOnCall makes faults. "make oncall" asks for it; nothing else does, since
// each fault lasts for longer than it takes to be seen.
var onCall = flag.Duration("oncall", 0, "how long TestOnCall makes random faults, after one of each kind")

const (
	// noticed is how long calls of an app to another may all fail before a surface must say so.
	noticed = 20 * time.Second
	// lasting is how long a fault that fails no call lasts.
	lasting = 30 * time.Second
	// cleared is how long after the last failed call each surface may take until it says that all is well.
	cleared = 90 * time.Second
	// window is of how much time calls count, and failing the share of them in percent that makes a pair fail.
	window  = 2 * time.Second
	failing = 50
)

// shift is a cluster on call: the calls that its apps make, and what its surfaces say.
type shift struct {
	*lab
	t       *testing.T
	disk    string // the file system that the caller's cluster has to itself
	callers []*caller
	console *sandbox.Console
	browser *http.Client
}

// surface says whether all is well.
type surface struct {
	name string
	says func(*shift, *caller) (well bool, text string)
}

// surfaces are asked of the caller's cluster, and of one caller.
var surfaces = []surface{
	{"status", func(s *shift, _ *caller) (bool, string) { return s.command("status", "--exit-code") }},
	{"check", func(s *shift, _ *caller) (bool, string) { return s.command("check") }},
	{"explain", func(s *shift, c *caller) (bool, string) {
		return s.command("explain", "--from", c.from.App.String(), c.to)
	}},
	{"top", func(s *shift, c *caller) (bool, string) {
		_, text := s.command("top", "--once", "--from", c.from.App.String(), "--to", c.from.App.Namespace+"/"+c.to, "--window", "10s", "-o", "json")
		var answer struct {
			Edges []struct {
				Success *float64
				Fault   any
			}
		}
		if err := json.Unmarshal([]byte(text), &answer); err != nil {
			return false, err.Error() + ": " + text
		}
		for _, e := range answer.Edges {
			if e.Fault != nil || e.Success != nil && *e.Success < .99 {
				return false, text
			}
		}
		return true, text
	}},
	{"overview", func(s *shift, _ *caller) (bool, string) {
		text := s.overview()
		return strings.Contains(text, "HEALTHY") && !strings.Contains(text, "UNHEALTHY"), text
	}},
}

// trouble is a fault: it is made, and mended by what making it returns. One that fails no call may
// be to be seen all the same: says is what the surfaces of the whole cluster then name.
type trouble struct {
	name string
	make func(*shift) (mend func(), err error)
	says string
}

// TestOnCall makes faults under calls, first one of each kind and then random ones, and wants no surface
// of the caller's cluster to say that all is well while all calls of an app to another fail; and
// every surface to say so again once they are answered.
func TestOnCall(t *testing.T) {
	if *onCall == 0 {
		t.Skip("runs by hand: make oncall DURATION=1h")
	}
	s := newShift(t)
	end := time.Now().Add(*onCall)
	random := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for number := 0; number < len(troubles) || time.Now().Before(end); number++ {
		fault := troubles[number%len(troubles)]
		if number >= len(troubles) {
			fault = troubles[random.IntN(len(troubles))]
		}
		s.endure(fault)
	}
}

func newShift(t *testing.T) *shift {
	t.Helper()
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=256m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	s := &shift{disk: disk, lab: newLab(t, plan{name: "west", dir: disk}, plan{name: "east"}, plan{name: "north"}), t: t}
	s.west.apply(t, s.selected(), selection("cart", "orders: east north", "stock: local"), selection("billing", "stock: local"))
	s.east.apply(t, export("orders"))
	s.north.apply(t, export("orders"))
	s.run(t, has{s.west, "checkout", 1}, has{s.west, "cart", 1}, has{s.west, "billing", 1}, has{s.west, "stock", 1},
		has{s.east, "orders", 1}, has{s.north, "orders", 1})
	s.callers = []*caller{
		calling(s.west.sidecars["checkout 1"], "orders"), calling(s.west.sidecars["cart 1"], "orders"), calling(s.west.sidecars["billing 1"], "stock"),
	}
	s.enter()
	startLoad(t, "oncall", deadline, s.callers...)
	s.calm(meshtest.Patience)
	return s
}

// selected is the selection of the app that faults of objects are about.
func (s *shift) selected() string { return selection("checkout", "orders: east") }

// enter opens the console as a browser does.
func (s *shift) enter() {
	s.t.Helper()
	ctx := meshtest.Within(s.t, meshtest.Patience)
	var err error
	if s.console, err = s.west.Console(ctx); err != nil {
		s.t.Fatal(err)
	}
	url, err := s.console.URL(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return sandbox.Dial(ctx, s.west.place, network, address)
	}}
	s.t.Cleanup(transport.CloseIdleConnections)
	s.browser = &http.Client{Transport: transport, Jar: jar, Timeout: meshtest.Attempt}
	s.page(url)
}

func (s *shift) page(url string) string {
	response, err := s.browser.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

var (
	tags   = regexp.MustCompile(`(?s)<(script|style|nav|header|footer).*?</(script|style|nav|header|footer)>|<[^>]*>`)
	blanks = regexp.MustCompile(`\s+`)
)

// overview is the text of the console's first page.
func (s *shift) overview() string {
	return blanks.ReplaceAllString(tags.ReplaceAllString(s.page("http://"+s.console.Address+"/"), " "), " ")
}

// command runs a command against the caller's cluster. All is well if it says so by its exit code.
func (s *shift) command(args ...string) (well bool, text string) {
	ctx, cancel := context.WithTimeout(s.t.Context(), meshtest.Attempt)
	defer cancel()
	text, err := s.west.isthmus(ctx, "", args...)
	if err != nil {
		text = err.Error()
	}
	return err == nil, text
}

// failing are the callers whose latest calls mostly failed.
func (s *shift) failing() (all []*caller) {
	for _, c := range s.callers {
		latest := of(c).since(time.Now().Add(-window))
		if failed := len(latest.failed()); failed > 0 && 100*failed >= failing*len(latest) {
			all = append(all, c)
		}
	}
	return all
}

// endure makes a fault, looks at the surfaces while calls fail, mends it and waits for calm.
func (s *shift) endure(fault trouble) {
	s.t.Helper()
	struck := time.Now()
	mend, err := fault.make(s)
	if err != nil {
		s.t.Fatalf("%s: %v", fault.name, err)
	}
	since := map[*caller]time.Time{}
	var looked bool
	for time.Since(struck) < lasting+noticed && !looked {
		time.Sleep(time.Second)
		now := map[*caller]time.Time{}
		for _, c := range s.failing() {
			now[c] = since[c]
			if now[c].IsZero() {
				now[c] = time.Now()
			}
			if time.Since(now[c]) >= noticed {
				s.look(fault, c)
				looked = true
			}
		}
		if since = now; len(now) == 0 && time.Since(struck) >= lasting {
			break
		}
	}
	if !looked {
		s.t.Logf("%s: no calls went on failing", fault.name)
	}
	if fault.says != "" {
		s.named(fault)
	}
	mend()
	s.calm(meshtest.Patience)
}

// look asks each surface about a caller whose calls fail.
func (s *shift) look(fault trouble, c *caller) {
	s.t.Helper()
	s.t.Logf("%s: calls of %s to %s fail:\n%s", fault.name, c.from.App, c.to, of(c).since(time.Now().Add(-window)).reasons())
	for _, each := range surfaces {
		well, text := each.says(s, c)
		if well {
			s.t.Errorf("%s: calls of %s to %s fail, and %s says that all is well:\n%s", fault.name, c.from.App, c.to, each.name, text)
			continue
		}
		if !strings.Contains(text, c.to) {
			s.t.Errorf("%s: calls of %s to %s fail, and %s does not name the callee:\n%s", fault.name, c.from.App, c.to, each.name, text)
		}
		s.t.Logf("%s: %s says:\n%s", fault.name, each.name, text[:min(len(text), 1500)])
	}
}

// named wants each surface of the cluster to name a fault by now.
func (s *shift) named(fault trouble) {
	s.t.Helper()
	for _, each := range surfaces {
		if each.name == "explain" || each.name == "top" { // are asked about one call
			continue
		}
		if well, text := each.says(s, s.callers[0]); well || !strings.Contains(text, fault.says) {
			s.t.Errorf("%s: %s does not say %q:\n%s", fault.name, each.name, fault.says, text)
		}
	}
}

// calm waits until calls are answered and each surface says that all is well, and logs how long either took.
func (s *shift) calm(limit time.Duration) {
	s.t.Helper()
	begun := time.Now()
	for last := time.Now(); time.Since(last) < window+time.Second; time.Sleep(100 * time.Millisecond) {
		if len(s.failing()) > 0 {
			last = time.Now()
		}
		if time.Since(begun) > limit {
			s.t.Fatalf("calls still fail %s after the fault was mended: %s", limit, of(s.failing()...).since(time.Now().Add(-window)).reasons())
		}
	}
	answered := time.Now()
	for _, each := range surfaces {
		for _, c := range s.callers {
			well, text := each.says(s, c)
			for ; !well && time.Since(answered) < cleared; well, text = each.says(s, c) {
				time.Sleep(time.Second)
			}
			if !well {
				s.t.Errorf("calls have been answered for %s, and %s still says:\n%s", time.Since(answered).Round(time.Second), each.name, text)
			}
		}
	}
	s.t.Logf("calls were answered %s after the fault was mended, and all surfaces said so %s later", round(answered.Sub(begun)), round(time.Since(answered)))
}

// freeze stops a process, without ending it.
func freeze(p *sandbox.Process) (mend func(), err error) {
	return func() { _ = p.Signal(syscall.SIGCONT) }, p.Signal(syscall.SIGSTOP)
}

// kill ends a process, until it is started again.
func (s *shift) kill(p *sandbox.Process) (mend func(), err error) {
	return func() {
		if err := p.Restart(meshtest.Within(s.t, meshtest.Patience)); err != nil {
			s.t.Error(err)
		}
	}, p.Kill()
}

// write applies an object, until another is applied in its place.
func (s *shift) write(c *cluster, wrong, right string) (mend func(), err error) {
	c.apply(s.t, wrong)
	return func() { c.apply(s.t, right) }, nil
}

// remove deletes an object, until it is applied again.
func (s *shift) remove(c *cluster, right string, which ...string) (mend func(), err error) {
	_, err = c.isthmus(meshtest.Within(s.t, meshtest.Patience), "", append([]string{"delete"}, which...)...)
	return func() { c.apply(s.t, right) }, err
}

// slow has an app take longer for each call.
func (s *shift) slow(takes time.Duration) (mend func(), err error) {
	app := s.east.sidecars["orders 1"].Behind
	app.Slow(takes)
	return func() { app.Slow(0) }, nil
}

// fill leaves no room on the disk of the caller's cluster.
func (s *shift) fill() (mend func(), err error) {
	f, err := os.CreateTemp(s.disk, "full-*")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for block := make([]byte, 1<<20); err == nil && len(block) > 0; {
		if _, err = f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block, err = block[:len(block)/2], nil
		}
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			s.t.Error(err)
		}
	}, err
}

var troubles = []trouble{
	{name: "the app is dead", make: func(s *shift) (func(), error) {
		app := s.east.sidecars["orders 1"].Behind
		app.Stop()
		return func() {
			if err := app.Start(); err != nil {
				s.t.Error(err)
			}
		}, nil
	}},
	{name: "the app is slow", make: func(s *shift) (func(), error) { return s.slow(6 * time.Second) }},
	{name: "the app hangs", make: func(s *shift) (func(), error) { return s.slow(20 * time.Second) }},
	{name: "the selection is deleted", make: func(s *shift) (func(), error) {
		return s.remove(s.west, s.selected(), "aep", namespace+"/checkout")
	}},
	{name: "the export is deleted", make: func(s *shift) (func(), error) {
		return s.remove(s.east, export("orders"), "AppExport", namespace+"/orders")
	}},
	{name: "the callee's Cluster is deleted", make: func(s *shift) (func(), error) {
		return s.remove(s.west, clusterObject(s.east, staleAfter()), "Cluster", "east")
	}},
	{name: "the caller's Cluster is deleted", make: func(s *shift) (func(), error) {
		return s.remove(s.east, clusterObject(s.west, staleAfter()), "Cluster", "west")
	}},
	{name: "the callee's root is another one", make: func(s *shift) (func(), error) {
		other, err := sandbox.NewAuthority()
		if err != nil {
			return nil, err
		}
		right := clusterObject(s.east, staleAfter())
		wrong := right + "  trust:\n    roots: |\n      " + strings.ReplaceAll(strings.TrimSpace(string(other.Anchors())), "\n", "\n      ") + "\n"
		return s.write(s.west, wrong, right)
	}},
	{name: "the only ready route has weight 0", make: func(s *shift) (func(), error) {
		return s.write(s.west, strings.Replace(s.selected(), "{cluster: east,", "{cluster: local, weight: 1}\n    - {cluster: east, weight: 0,", 1), s.selected())
	}},
	{name: "the callee's service and gateway are killed", make: func(s *shift) (func(), error) { return s.kill(s.east.Service.Process) }},
	{name: "the callee's service and gateway are frozen", make: func(s *shift) (func(), error) { return freeze(s.east.Service.Process) }},
	{name: "the callee's sidecar is killed", make: func(s *shift) (func(), error) { return s.kill(s.east.sidecars["orders 1"].Process) }},
	{name: "the callee's sidecar is frozen", make: func(s *shift) (func(), error) { return freeze(s.east.sidecars["orders 1"].Process) }},
	{name: "a local callee's sidecar is killed", make: func(s *shift) (func(), error) { return s.kill(s.west.sidecars["stock 1"].Process) }},
	{name: "a local callee's sidecar is frozen", make: func(s *shift) (func(), error) { return freeze(s.west.sidecars["stock 1"].Process) }},
	{name: "packets to the callee's cluster vanish", make: func(s *shift) (func(), error) {
		s.cut(s.west.network, s.east.network)
		return s.Heal, nil
	}},
	{name: "packets from the callee's cluster vanish", make: func(s *shift) (func(), error) {
		s.cut(s.east.network, s.west.network)
		return s.Heal, nil
	}},
	{name: "the caller's Sentry is frozen", make: func(s *shift) (func(), error) { return freeze(s.west.Sentry.Process) }},
	{name: "the caller's disk is full", make: (*shift).fill, says: "disk"},
}
