package faults

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// lab is clusters that know each other, in a network of their own.
type lab struct {
	*network.Network
	authority         *sandbox.Authority
	trials            []*trial
	ramps             time.Time // from when on all services bring traffic back in steps
	west, east, north *cluster  // north may be nil
}

// seed decides which packets are lost.
const seed = 4

// newLab starts clusters without sidecars. They trust one root, and each has a Sentry.
func newLab(t *testing.T, plans ...plan) *lab {
	t.Helper()
	needsBinaries(t)
	network.Need(t)
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{Network: network.New(seed), authority: authority}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	var all []*cluster
	for i, p := range plans {
		c := newCluster(t, l, p, i+1)
		all = append(all, c)
		switch p.name {
		case "west":
			l.west = c
		case "east":
			l.east = c
		case "north":
			l.north = c
		}
	}
	together(t, all, func(c *cluster) error { return c.start(meshtest.Within(t, meshtest.Patience)) })
	l.ramps = time.Now().Add(settled)
	t.Cleanup(l.settle) // before anything is closed
	for _, c := range all {
		for _, other := range all {
			if other != c {
				c.apply(t, clusterObject(other, staleAfter()))
			}
		}
	}
	return l
}

// settled is how long replicas that start for the first time take for what comes to have run
// all along, and bring nothing back in steps: 15 s for sidecars that were away from all
// replicas, and 5 s for the rest.
const settled = 21 * time.Second

// clusters are those that the lab has.
func (l *lab) clusters() (all []*cluster) {
	for _, c := range []*cluster{l.west, l.east, l.north} {
		if c != nil {
			all = append(all, c)
		}
	}
	return all
}

// everywhere is every address of the network.
var everywhere = netip.MustParsePrefix("10.77.0.0/16")

// only is one address.
func only(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// cut has every packet vanish that goes from some addresses to others.
func (l *lab) cut(from, to netip.Prefix) { l.Set(from, to, network.Conditions{Drop: true}) }

// needsBinaries fails a test when what it runs is not built, and leaves it out in a
// short run.
func needsBinaries(t *testing.T) {
	t.Helper()
	programstest.World(t, "daprd", "sentry", "isthmus", "etcd")
}

// atOnce is how many processes are started at the same time.
const atOnce = 4

// together does something for each, some at a time, and fails the test with all errors.
func together[T any](t *testing.T, all []T, do func(T) error) {
	t.Helper()
	errs := make([]error, len(all))
	free := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, each := range all {
		free <- struct{}{}
		wg.Go(func() {
			errs[i] = do(each)
			<-free
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// address is number b of cluster a.
func address(a, b int) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("10.77.%d.%d", a, b))
}
