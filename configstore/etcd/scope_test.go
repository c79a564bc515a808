package etcd

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
)

// A reader of one app's scope has two watches; what one transaction wrote for both is one
// change all the same.
func TestABatchReachesASidecarWhole(t *testing.T) {
	p := newPlace(t, &secureServer)
	s := storetest.Closing(t, p.Open(t).(*Store))
	scope := configstore.Scope{App: catalog.App{Namespace: "shop", ID: "checkout"}}
	own := storetest.Closing(t, p.Scoped(t, scope).(*Store))
	write := func(n int) {
		app := fmt.Sprintf("callee-%d", n)
		_, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", fmt.Sprintf("n%d", n))},
			configstore.Write{Object: &catalog.AppEndpoints{App: scope.App, Endpoints: []catalog.Endpoint{{App: catalog.App{Namespace: "shop", ID: app}}}}})
		if err != nil {
			t.Error(err)
		}
	}
	write(0)
	const last = 50
	enough := errors.New("enough")
	began := false
	var writing sync.WaitGroup
	defer writing.Wait()
	err := own.Watch(t.Context(), "", func(c configstore.Change) error {
		if !began {
			began = true
			writing.Go(func() {
				for n := range last {
					write(n + 1)
				}
			})
			return nil
		}
		if len(c.Objects) != 2 {
			t.Errorf("a change with %d objects of the 2 that were written together: %+v", len(c.Objects), c)
		}
		for _, o := range c.Objects {
			if east, ok := o.Object.(*catalog.Cluster); ok && east.Network == fmt.Sprintf("n%d", last) {
				return enough
			}
		}
		return nil
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
}
