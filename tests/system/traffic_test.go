package system

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/traffic"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// edgeCounts are calls of one edge, as isthmus top -o json has them.
type edgeCounts struct {
	Caller, CallerCluster, Callee, Cluster string
	ByCallee                               bool
	Traffic                                struct{ Ends []uint64 }
	UnderWay                               uint64
	Share, WantedShare, P50Ms, P99Ms       float64
}

func (e *edgeCounts) ends(end traffic.End) uint64 {
	if int(end) < len(e.Traffic.Ends) {
		return e.Traffic.Ends[end]
	}
	return 0
}

// top are the calls of all that a cluster keeps.
func (m *mesh) top(t *testing.T, c *sandbox.Cluster, args ...string) (all []edgeCounts, err error) {
	t.Helper()
	out, errs, err := m.isthmus(t, c, "", append([]string{"top", "--window", "15m", "-o", "json"}, args...)...)
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, errs)
	}
	var answer struct{ Edges []edgeCounts }
	return answer.Edges, json.Unmarshal([]byte(out), &answer)
}

// callMany makes calls, eight at a time, and returns how many were answered.
func callMany(t *testing.T, n int, call func(context.Context) error) (answered int64) {
	t.Helper()
	var good, begun atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for begun.Add(1) <= int64(n) {
				if call(meshtest.Within(t, meshtest.Patience)) == nil {
					good.Add(1)
				}
			}
		})
	}
	all.Wait()
	return good.Load()
}

// TestEveryCallIsCounted makes calls by HTTP and by gRPC to an app in two clusters, in each of which an
// instance is lost and comes back, and so does the caller's sidecar. What both services then say is what
// was called, and what the apps have got.
func TestEveryCallIsCounted(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	const space = "counted"
	m.apply(t, m.east, export(space, "orders", "west"))
	m.apply(t, m.west, selection(space, "checkout", "app: orders, routes: [{cluster: local, weight: 75}, {cluster: east, weight: 25}]"))
	here, there := m.app(t, m.west, space, "orders"), m.app(t, m.east, space, "orders")
	checkout := m.app(t, m.west, space, "checkout")
	answers(t, checkout, "orders", "west")
	answers(t, checkout, "orders", "east")

	warm := here.Behind.Calls() + there.Behind.Calls()
	byHTTP := func(ctx context.Context) error {
		_, err := checkout.Invoke(ctx, "orders", "hello", untraced)
		return err
	}
	sent := int64(600)
	if n := callMany(t, 600, byHTTP); n != 600 {
		t.Fatalf("%d of 600 calls by HTTP were answered", n)
	}
	failed := 40
	callMany(t, failed, func(ctx context.Context) error {
		_, err := checkout.Invoke(ctx, "orders", "hello?status=503", untraced)
		return err
	})
	asked := 30
	callMany(t, asked, func(ctx context.Context) error {
		_, err := checkout.Invoke(ctx, "orders", "hello?status=404", untraced)
		return err
	})

	// The caller's sidecar ends. It tells of its last calls before.
	if err := checkout.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	want := map[traffic.End]int64{traffic.OK: sent + warm, traffic.AppError: int64(failed), traffic.ClientError: int64(asked)}
	both := map[string]int64{"west": here.Behind.Calls(), "east": there.Behind.Calls()}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		all, err := m.top(t, m.west, "--from", space+"/checkout", "--to", space+"/orders")
		if err != nil {
			return err
		}
		got, calls := map[traffic.End]int64{}, map[string]int64{}
		for i := range all {
			for end := range traffic.End(traffic.Ends) {
				if n := int64(all[i].ends(end)); n > 0 {
					got[end] += n
					calls[all[i].Cluster] += n
				}
			}
			if all[i].ByCallee || all[i].CallerCluster != "west" || all[i].UnderWay != 0 {
				return fmt.Errorf("%+v", all[i])
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || fmt.Sprint(calls) != fmt.Sprint(both) {
			return fmt.Errorf("counted %v by end and %v by cluster, want %v and %v", got, calls, want, both)
		}
		return nil
	})
	// East's guard has seen those that went there.
	meshtest.Eventually(t, meshtest.Patience, func() error {
		all, err := m.top(t, m.east, "--to", space+"/orders")
		if err != nil {
			return err
		}
		var calls int64
		for i := range all {
			for _, n := range all[i].Traffic.Ends {
				calls += int64(n)
			}
			if !all[i].ByCallee || all[i].CallerCluster != "west" || all[i].Caller != space+"/checkout" {
				return fmt.Errorf("%+v", all[i])
			}
		}
		if calls != both["east"] {
			return fmt.Errorf("east counted %d calls, want %d", calls, both["east"])
		}
		return nil
	})
}

// TestCallsAreCountedOverFaults has instances end under load: what fails and what goes elsewhere is
// counted as that.
func TestCallsAreCountedOverFaults(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	const space = "countedfaults"
	m.apply(t, m.east, export(space, "orders", "west"))
	m.apply(t, m.west, selection(space, "checkout", "app: orders, routes: [{cluster: local}, {cluster: east}]"))
	here := m.app(t, m.west, space, "orders")
	m.app(t, m.east, space, "orders")
	checkout := m.app(t, m.west, space, "checkout")
	answers(t, checkout, "orders", "west")

	conn, err := checkout.Dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var made, good atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var calling sync.WaitGroup
	for worker := range 4 {
		calling.Go(func() {
			for ctx.Err() == nil {
				limit, done := context.WithTimeout(context.WithoutCancel(ctx), meshtest.Patience)
				made.Add(1)
				var err error
				if worker%2 == 0 {
					_, err = checkout.Invoke(limit, "orders", "hello", untraced)
				} else {
					_, err = sandbox.Proxy(limit, conn, "orders", nil)
				}
				done()
				if err == nil {
					good.Add(1)
				}
			}
		})
	}
	time.Sleep(time.Second)
	if err := here.Kill(); err != nil {
		t.Error(err)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		all, err := m.top(t, m.west, "--from", space+"/checkout", "--in", "east")
		if err != nil || len(all) == 0 {
			return fmt.Errorf("no calls to east yet: %w", err)
		}
		return nil
	})
	stop()
	calling.Wait()
	warm := int64(1) // at least, by answers
	meshtest.Eventually(t, meshtest.Patience, func() error {
		all, err := m.top(t, m.west, "--from", space+"/checkout")
		if err != nil {
			return err
		}
		var calls, fine int64
		for i := range all {
			for end, n := range all[i].Traffic.Ends {
				calls += int64(n)
				if traffic.End(end).Good() {
					fine += int64(n)
				}
			}
		}
		if calls < made.Load()+warm || calls > made.Load()+20 || fine < good.Load()+warm || fine > good.Load()+20 {
			return fmt.Errorf("counted %d calls, %d good, want %d and %d, and those before", calls, fine, made.Load(), good.Load())
		}
		return nil
	})
}

// TestTap looks at single calls at both ends, and has the sidecars tell of none once nobody looks.
func TestTap(t *testing.T) {
	t.Parallel()
	m := sharedMesh(t)
	const space = "tapped"
	m.apply(t, m.east, export(space, "orders", "west"))
	m.apply(t, m.west, selection(space, "checkout", "app: orders"))
	m.app(t, m.east, space, "orders")
	checkout := m.app(t, m.west, space, "checkout")
	answers(t, checkout, "orders", "east")
	stop := callsAgain(t, checkout, "orders", meshtest.Attempt)
	defer stop()

	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]*meshtest.Printed{}
	ctx, end := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	for _, c := range []*sandbox.Cluster{m.west, m.east} {
		printed := &meshtest.Printed{}
		lines[c.Name] = printed
		command := exec.CommandContext(ctx, binary, "tap", "--to", space+"/orders")
		command.Env = append(os.Environ(), c.CommandLine()...)
		command.Stdout, command.Stderr = printed, printed
		command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
		looking.Go(func() {
			if err := command.Run(); err != nil && ctx.Err() == nil {
				t.Errorf("tap in %s: %v", c.Name, err)
			}
		})
	}
	for cluster, want := range map[string]string{"west": "caller  west:tapped/checkout -> tapped/orders  east ", "east": "callee  west:tapped/checkout -> tapped/orders  east  ok  "} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if text := lines[cluster].String(); !strings.Contains(text, want) || !strings.Contains(text, " sidecars of this replica tell of their calls") {
				return fmt.Errorf("tap in %s printed %q, want %q", cluster, text, want)
			}
			return nil
		})
	}
	m.says(t, m.west, "events", "single calls are looked at", "callee=tapped/orders", "by=")
	end()
	looking.Wait()
	m.says(t, m.west, "events", "single calls are not looked at any more", "callee=tapped/orders")
}
