package static

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
)

// anywhere lets checks ask loopback.
type anywhere struct{}

func (anywhere) Instance(netip.AddrPort) error { return nil }
func (anywhere) Direct(netip.AddrPort) error   { return nil }

// local is a prober that may ask loopback, as on a machine of a developer.
func local() *probe.Prober { return probe.New(probe.Config{Targets: anywhere{}}) }

// TestManyInstancesAtOneHost are asked later than their interval says, and the host is not
// flooded. None is taken for one that fails.
func TestManyInstancesAtOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		prepare := func(*catalog.AppInstance) asker {
			return func(context.Context) error {
				asked.Add(1)
				return nil
			}
		}
		const most = 200 // a second
		var objects []*catalog.AppInstance
		for n := range 2565 {
			o := named(fmt.Sprint("one-", n))
			o.Address = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.7"), uint16(1+n))
			objects = append(objects, o)
		}
		w := watch(t, prepare, objects...)
		time.Sleep(20 * time.Second) // each has been asked
		set, refused := w.now()
		if strings.Contains(set, " not") || len(refused) > 0 {
			t.Errorf("some are not ready; refused: %q", refused)
		}
		before := asked.Load()
		time.Sleep(10 * time.Second)
		if got := asked.Load() - before; got > 10*most+1 || got < 9*most {
			t.Errorf("%d were asked in 10 s, want %d a second", got, most)
		}
	})
}

// TestNoLoopbackNorLinkLocal is asked, whatever an object says.
func TestNoLoopbackNorLinkLocal(t *testing.T) {
	l := listen(t)
	port := netip.MustParseAddrPort(l.Addr().String()).Port()
	for address, want := range map[string]string{"127.0.0.1": "loopback", "169.254.169.254": "link-local"} {
		o := at(netip.AddrPortFrom(netip.MustParseAddr(address), port).String(), catalog.HealthCheck{Kind: catalog.CheckHTTP, Path: "/latest/meta-data", Host: "metadata"})
		turn, done, err := probe.New(probe.Config{}).Wait(t.Context(), probe.Subject{App: o.AppRef(), Host: o.Address.Addr()})
		if err != nil {
			t.Fatal(err)
		}
		if err := prepare(o)(turn); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", address, err, want)
		}
		done()
	}
}
