package system

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// says waits until a command of a cluster prints a line with all of some words; of lines that people
// get, each paragraph counts as one.
func (m *mesh) says(t *testing.T, c *sandbox.Cluster, command string, words ...string) {
	t.Helper()
	m.prints(t, c, command, true, words...)
}

// stopsSaying waits until no line has all of some words.
func (m *mesh) stopsSaying(t *testing.T, c *sandbox.Cluster, command string, words ...string) {
	t.Helper()
	m.prints(t, c, command, false, words...)
}

func (m *mesh) prints(t *testing.T, c *sandbox.Cluster, command string, want bool, words ...string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, errs, _ := m.isthmus(t, c, "", strings.Fields(command)...) // its code is that of the worst finding
		found := false
		for _, part := range paragraphs(out) {
			has := true
			for _, word := range words {
				has = has && strings.Contains(part, word)
			}
			found = found || has
		}
		if found != want {
			return fmt.Errorf("isthmus %s in %s: %q found: %v\n%s%s", command, c.Name, words, found, out, errs)
		}
		return nil
	})
}

// paragraphs are the lines of a text, each with those below it that are indented more.
func paragraphs(text string) (all []string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if text := strings.TrimLeft(line, " "); len(all) > 0 && text != "" && (strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "      ")) {
			all[len(all)-1] += " " + text
			continue
		}
		all = append(all, line)
	}
	return all
}

// callsAgain calls an app again and again, each time for at most so long, until the function that it
// returns is called.
func callsAgain(t *testing.T, from *sandbox.Sidecar, id string, limit time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			attempt, done := context.WithTimeout(ctx, limit)
			_, _ = from.Invoke(attempt, id, "hello", untraced)
			done()
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// TestNothingIsGreenWhileCallsFail makes the most likely first mistake, and then what goes wrong later.
// Each time both clusters say who can't call whom, and why; and they stop saying so once it is mended.
func TestNothingIsGreenWhileCallsFail(t *testing.T) {
	t.Parallel()
	m := ownMesh(t, meshOptions{}) // lists of findings end somewhere, and those of other tests are first
	selected := selection("lights", "checkout", "app: orders")
	m.apply(t, m.west, selected)
	orders := m.app(t, m.east, "lights", "orders")
	checkout := m.app(t, m.west, "lights", "checkout")

	// The AppExport was forgotten: the caller's error and both clusters name it.
	meshtest.Eventually(t, meshtest.Patience, func() error {
		_, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", untraced)
		var refused *sandbox.InvokeError
		if !errors.As(err, &refused) || !strings.Contains(refused.Body, "takes an AppExport there") {
			return fmt.Errorf("the caller is told %w", err)
		}
		return nil
	})
	m.says(t, m.west, "check", "calls-refused", "lights/checkout to lights/orders", "unavailable", "AppExport")
	m.says(t, m.west, "check", "selection-exports", "lights/checkout", "write AppExport lights/orders there that lets lights/checkout of cluster west have it")
	m.says(t, m.east, "check", "export-missing", "cluster west asks for lights/orders", "write AppExport lights/orders with {cluster: west, namespace: lights, app: checkout}")
	m.apply(t, m.east, export("lights", "orders", "west"))
	answers(t, checkout, "orders", "east")
	m.stopsSaying(t, m.east, "check", "export-missing", "lights/orders")
	m.stopsSaying(t, m.west, "status", "lights/orders")

	// The selection is deleted under load.
	stop := callsAgain(t, checkout, "orders", meshtest.Attempt)
	if _, errs, err := m.isthmus(t, m.west, "", "delete", "aep", "lights/checkout"); err != nil {
		t.Fatal(err, errs)
	}
	refused := []string{"lights/checkout to lights/orders", "refused in the last minute", "not found", "AppEndpoints lights/checkout was deleted by"}
	m.says(t, m.west, "status", append(refused, "calls")...)
	m.says(t, m.west, "status", "UNHEALTHY")
	m.says(t, m.west, "check", append(refused, "FAIL  calls-refused")...)
	m.says(t, m.west, "events", "calls fail", "caller=lights/checkout", "callee=lights/orders")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if n := value(m.page(t, m.west.Admin, "/metrics"), `isthmus_check_findings{check="calls-refused",level="fail"}`); n == "" || n == "0" {
			return fmt.Errorf("%q findings of calls-refused in the metrics", n)
		}
		return nil
	})
	m.apply(t, m.west, selected)
	answers(t, checkout, "orders", "east")
	m.stopsSaying(t, m.west, "status", "lights/orders")
	stop()

	// The callee hangs: callers wait, or give up.
	orders.Behind.Slow(8 * time.Second)
	stop = callsAgain(t, checkout, "orders", 2*time.Second)
	m.says(t, m.west, "status", "lights/orders", "slow or hangs in cluster east", "given up without an answer", "lights/checkout")
	m.says(t, m.west, "apps orders --namespace lights", "lights/orders: it is slow or hangs")
	stop()
	orders.Behind.Stop()
	orders.Behind.Slow(0)

	// It is dead.
	m.says(t, m.east, "status", "lights/orders", "1 of 1 instances can't take calls", "refuses connections")
	m.says(t, m.east, "sidecars orders --namespace lights", "draining: its app takes no calls")
	m.says(t, m.west, "status", "lights/orders", "nobody offers it any more", "lights/checkout may call it")
	if err := orders.Behind.Start(); err != nil {
		t.Fatal(err)
	}
	answers(t, checkout, "orders", "east")
	m.stopsSaying(t, m.east, "status", "lights/orders")
	m.stopsSaying(t, m.west, "status", "lights/orders")
}
