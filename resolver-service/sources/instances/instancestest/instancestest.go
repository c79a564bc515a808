// Package instancestest is the specification of a source of instances, as tests that
// every source must pass against its real server. A source's test is
//
//	func TestSource(t *testing.T) {
//		instancestest.Run(t, func(t *testing.T) instancestest.Backend { … })
//	}
//
// Each test gets a Backend of its own, whose server has no instances.
package instancestest

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// Backend is one server of instances under test. A backend leaves the functions nil that it lacks,
// and the specifications that need them are skipped by name. One specification runs at a time.
//
// Changes reach the server by a way of its own, also while the link is cut or slow, and are there
// when the function returns. Instances are named by App and ID; the source may call them by other
// IDs.
type Backend struct {
	// Open makes the source, which reaches the server by the link. It has no Close: a
	// Watch that has ended leaves nothing behind.
	Open func(t testing.TB) instances.Source

	// Put makes instances known, ready, or changes them. They are in the namespaces shop
	// and finance.
	Put func(t testing.TB, all ...catalog.Instance)

	// Drain makes an instance that is known one which takes no new calls, until it is put
	// again.
	Drain func(t testing.TB, i catalog.Instance)

	// Delete makes instances gone that are known.
	Delete func(t testing.TB, all ...catalog.Instance)

	// Spoil makes something known that can't be used, by as many ways as there are, and
	// returns a word or more of each that the refusal has in Where or Err. mend takes it
	// away.
	Spoil func(t testing.TB) (words []string, mend func())

	// Fail makes the server unreachable, its link refused, until mend is called.
	Fail func(t testing.TB) (mend func())

	// Restart ends the server, with SIGKILL if kill and otherwise as its operators do,
	// and starts it again with its data. It returns when the server serves again.
	Restart func(t testing.TB, kill bool)

	// Cut makes the link to the server drop every packet silently, until mend is called.
	Cut func(t testing.TB) (mend func())

	// Slow makes the link delay every packet by so much each way, until mend is called.
	Slow func(t testing.TB, by time.Duration) (mend func())

	// Forget makes the server forget its history of changes.
	Forget func(t testing.TB)

	// Denied makes the source with credentials that the server does not accept.
	Denied func(t testing.TB) instances.Source

	// Servers is how errors name the server: the host:port of every link to it. One of
	// them stands in every error that the server or a link causes.
	Servers []string

	// Secrets are the passwords and tokens of all credentials. They may never stand in an
	// error.
	Secrets []string

	// Many is how many instances a huge set has; 2,000 where it is 0.
	Many int
}

// patience is how long anything may take before a test gives up.
var patience = time.Minute

// orSkip skips a specification that needs what a backend does not have.
func orSkip(t testing.TB, has bool, why string) {
	t.Helper()
	if !has {
		t.Skip(why)
	}
}

// Run holds a source to the specification.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for _, group := range [][]specification{changes(), contract(), outages(), access()} {
		for _, s := range group {
			t.Run(s.says, func(t *testing.T) {
				s.test(t, open(t))
			})
		}
	}
}

// specification is one thing that every source does.
type specification struct {
	says string
	test func(t *testing.T, b Backend)
}

func at(app, id, address string) catalog.Instance {
	return catalog.Instance{App: catalog.App{Namespace: "shop", ID: app}, ID: id, Address: netip.MustParseAddrPort(address)}
}

// The instances that most specifications are about.
func one() catalog.Instance   { return at("orders", "one", "10.1.0.1:50002") }
func two() catalog.Instance   { return at("orders", "two", "10.1.0.2:50002") }
func three() catalog.Instance { return at("billing", "three", "10.1.0.3:50102") }

func elsewhere() catalog.Instance {
	i := at("orders", "four", "10.1.0.4:50002")
	i.App.Namespace = "finance"
	return i
}

func draining(i catalog.Instance) catalog.Instance {
	i.Draining = true
	return i
}

func moved(i catalog.Instance, address string) catalog.Instance {
	i.Address = netip.MustParseAddrPort(address)
	return i
}

// line is an instance as it must be, whatever its source calls it.
func line(i catalog.Instance) string {
	state := "ready"
	if i.Draining {
		state = "draining"
	}
	return fmt.Sprintf("%s %s %s", i.App, i.Address, state)
}
