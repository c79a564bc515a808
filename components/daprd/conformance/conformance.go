// Package conformance is what Dapr may ask of a name resolver, as a suite of tests: daprd calls every
// resolver in the same way, so each should behave in the same way.
//
// The package needs Dapr's interface of name resolvers and the standard library only. Run is its
// entry. It runs the resolver that is tested in the process of the test, as that of the calling
// sidecar, and each sidecar that is found in a process of its own.
package conformance

import (
	"context"
	"slices"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
)

// Capability names a check that a resolver need not pass. The check is skipped for a resolver that
// does not claim it.
type Capability string

// The capabilities. The text of a check says what each means.
const (
	Strict     Capability = "Strict"
	Namespaces Capability = "Namespaces"
	Ports      Capability = "Ports"
	IPv6       Capability = "IPv6"
	Refuses    Capability = "Refuses"
	Prompt     Capability = "Prompt"
	Outage     Capability = "Outage"
)

// All are all capabilities.
func All() []Capability {
	return []Capability{Strict, Namespaces, Ports, IPv6, Refuses, Prompt, Outage}
}

// Setup is what the suite has to know of a resolver. The zero value is that of a resolver that needs
// no configuration and no server, and registers its own sidecar in Init.
type Setup struct {
	// Start starts what the resolver needs, and returns the resolver's configuration: a value that
	// JSON can carry. It is called once, and only in the process of the test.
	Start func(t *testing.T) any
	// Invalid are configurations that Init must refuse, by what is wrong with them.
	Invalid map[string]any
	// Register makes an instance known where the platform does that, and not the resolver.
	Register func(t *testing.T, i nr.Instance) (remove func())
	// IP is the address of the nth instance. Nil: addresses of the loopback interface.
	IP func(n int) string
	// IPv6 is the address of an instance that has only that; "::1" by default.
	IPv6 string
	// Serve runs what else a sidecar serves for the resolver, in the process of that sidecar and
	// before Init. A health endpoint as that of daprd is there anyway.
	Serve func(t *testing.T, i nr.Instance)
	// Endpoints returns the endpoints that a connection to an answer of the resolver leads to, or may
	// lead to. Nil: the answer itself or, for a host name, its addresses in DNS.
	Endpoints func(ctx context.Context, r nr.Resolver, answer string) ([]string, error)
	// Pause stops the resolver's server from answering, until resume. Nil: there is none.
	Pause func(t *testing.T) (resume func())
	// Within is how long a change may take to be followed, 10 s by default.
	Within time.Duration
	// Patience is how many times as long as usual everything may take, 1 by default. A machine that
	// does much else at the time needs more.
	Patience int
}

// A check is one test of the suite.
type check struct {
	Group, Name string
	Says        string // what a resolver does that passes
	Needs       Capability
	run         func(t *testing.T, w *world)
}

// checks are all checks, in the order in which they run. Those of one group that wait for changes run
// beside each other.
func checks() []check {
	return slices.Concat(initChecks, lookupChecks, changeChecks, contextChecks, closeChecks)
}

// Run tests a resolver. newResolver makes one as the component's registration does, without Init.
func Run(t *testing.T, newResolver func() nr.Resolver, setup Setup, capabilities ...Capability) {
	if actsAsSidecar(t, newResolver, setup) {
		return
	}
	w := newWorld(t, newResolver, setup)
	for group := range groups() {
		t.Run(group, func(t *testing.T) {
			for _, c := range checks() {
				if c.Group != group {
					continue
				}
				t.Run(c.Name, func(t *testing.T) {
					if c.Needs != "" && !slices.Contains(capabilities, c.Needs) {
						t.Skipf("the resolver does not claim: %s", c.Says)
					}
					if group == changes {
						t.Parallel()
					}
					c.run(t, w)
				})
			}
		})
	}
}

// groups are the names of the groups, in order.
func groups() func(yield func(string) bool) {
	return func(yield func(string) bool) {
		last := ""
		for _, c := range checks() {
			if c.Group != last && !yield(c.Group) {
				return
			}
			last = c.Group
		}
	}
}
