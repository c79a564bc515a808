// Package meshtest is what tests of whole systems share: how they wait, and the objects
// that they write.
package meshtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Together has so many tests of a package run at a time, unless its command line says how many. It comes
// before they run.
func Together(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return
	}
	if err := flag.Set("test.parallel", strconv.Itoa(n)); err != nil {
		panic(err)
	}
}

// Leaks is the exit code of tests that ended with code: 1 where all went well but goroutines
// are left, which it tells of.
func Leaks(code int) int {
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// Patience is how long a test waits for what should happen, and for a call to be answered: so
// long that a machine which is slow and busy does not miss it. Only a test that fails waits
// for so long.
const Patience = 2 * time.Minute

// Attempt is how long one of several tries may take.
const Attempt = 20 * time.Second

// Eventually tries until it goes well, and fails the test with the last error.
func Eventually(t *testing.T, limit time.Duration, try func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("not within %s: %v", limit, err)
}

// Within is the test's context for so long.
func Within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// StaleAfter is how long leases last where no test waits for one to run out: longer than a
// machine stands still or lets a process wait.
const StaleAfter = time.Minute

// Cluster is a Cluster with these gateways and a long lease, in YAML to which more of its
// spec may be added.
func Cluster(name string, gateways ...string) string {
	return ClusterThatLapses(StaleAfter, name, gateways...)
}

// ClusterThatLapses is [Cluster] with a lease that a test is about.
func ClusterThatLapses(staleAfter time.Duration, name string, gateways ...string) string {
	addresses := make([]string, len(gateways))
	for i, g := range gateways {
		addresses[i] = fmt.Sprintf("{address: %q}", g)
	}
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: Cluster
metadata: {name: %s}
spec:
  gateways: [%s]
  staleAfter: %s
`, name, strings.Join(addresses, ", "), staleAfter)
}

// Export is an AppExport that lets every app of a cluster call an app.
func Export(namespace, id, cluster string) string {
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppExport
metadata: {namespace: %s, name: %s}
spec:
  allow:
  - {cluster: %s}
`, namespace, id, cluster)
}

// Selection is an AppEndpoints that lets an app call others, each written as in YAML
// without the dash, such as "app: orders".
func Selection(namespace, id string, endpoints ...string) string {
	list := " []"
	if len(endpoints) > 0 {
		list = "\n  - {" + strings.Join(endpoints, "}\n  - {") + "}"
	}
	return fmt.Sprintf(`apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: %s, name: %s}
spec:
  endpoints:%s
`, namespace, id, list)
}

// Printed is output that is read while it is written.
type Printed struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write takes more.
func (p *Printed) Write(more []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(more)
}

// String is all of it.
func (p *Printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// LineWith is the first line that has a part, without blanks around it; empty for none.
func LineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
