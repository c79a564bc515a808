package nameresolution

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestDifferencesMakeANewView(t *testing.T) {
	one := received(t, 1, "10.0.0.1:50002")
	two, err := one.with(&pb.WatchResponse{Revision: 2, Removed: []*pb.App{wire.App(orders)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := two.view.Entries.Get(orders); ok || two.digests.Len() != 0 || two.revision() != 2 || two.view.Open {
		t.Errorf("after the removal: %+v", two.view)
	}
	if two.view.Gateways != one.view.Gateways {
		t.Error("gateways that were not sent changed")
	}
	if address, err := resolve(one.view, orders); address != "10.0.0.1:50002" || err != nil {
		t.Errorf("the view of before was touched: %s, %v", address, err)
	}
}

func TestAPartThatCantBeReadLeavesWhatStood(t *testing.T) {
	one := received(t, 1, "10.0.0.1:50002")
	bad := &pb.ViewEntry{App: wire.App(orders), Routes: []*pb.ViewRoute{{State: 99}}, Digest: 7}
	fine := one.message().Put[0]
	fine.App = wire.App(ledger)
	two, err := one.with(&pb.WatchResponse{Revision: 2, Put: []*pb.ViewEntry{bad, fine}, Gateways: &pb.Gateways{Domain: "-"}})
	if err == nil || !strings.Contains(err.Error(), "shop/orders") || !strings.Contains(err.Error(), "gateways") {
		t.Errorf("the error is %v", err)
	}
	if address, _ := resolve(two.view, orders); address != "10.0.0.1:50002" {
		t.Errorf("orders is at %q", address)
	}
	if address, _ := resolve(two.view, ledger); address != "10.0.0.1:50002" {
		t.Errorf("ledger is at %q", address)
	}
	if two.view.Gateways != one.view.Gateways {
		t.Error("bad gateways were taken")
	}
	// It must be sent anew by the next stream.
	if _, known := two.digests.Get(orders); known {
		t.Error("the entry that can't be read counts as known")
	}
}

func TestAViewIsProvisionalOnlyWhileThereWasNoOther(t *testing.T) {
	lacks, whole := &pb.WatchResponse{Provisional: true}, &pb.WatchResponse{}
	for _, c := range []struct {
		what string
		sent []*pb.WatchResponse
		want bool
	}{
		{"the first, of a service that has just started", []*pb.WatchResponse{lacks}, true},
		{"and what follows", []*pb.WatchResponse{lacks, lacks}, true},
		{"until it has settled", []*pb.WatchResponse{lacks, whole}, false},
		{"which another that starts does not undo", []*pb.WatchResponse{whole, lacks}, false},
	} {
		var m *mirror
		for _, change := range c.sent {
			var err error
			if m, err = m.with(change); err != nil {
				t.Fatal(err)
			}
		}
		if final := m.final(); final.provisional || final.view != m.view {
			t.Errorf("%s: %+v is not final", c.what, final)
		}
		again, err := (*mirror)(nil).with(m.message()) // as the last good view is read
		if m.provisional != c.want || again.provisional != c.want || err != nil {
			t.Errorf("%s: provisional %t, and %t from disk, %v", c.what, m.provisional, again.provisional, err)
		}
	}
}

func TestAHelloFitsIntoWhatServicesTake(t *testing.T) {
	for _, c := range []struct {
		apps, name int
		fits       bool
	}{{0, 1, true}, {maxKnown, 12, true}, {maxKnown + 1, 6, false}, {maxKnown, 58, false}, {8000, 58, true}} {
		all := &pb.WatchResponse{}
		for i := range c.apps {
			id := fmt.Sprintf("%0*d", c.name, i)
			all.Put = append(all.Put, &pb.ViewEntry{App: &pb.App{Namespace: id[:min(len(id), 30)], Id: id}, Digest: 1 << 63})
		}
		m, err := (*mirror)(nil).with(all)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.fits(maxKnown, maxKnownBytes); got != c.fits {
			t.Errorf("%d apps with names of %d bytes: fits is %v", c.apps, c.name, got)
		}
		hello := &pb.WatchRequest{Request: &pb.WatchRequest_Hello{Hello: &pb.Hello{Known: m.known()}}}
		if n := proto.Size(hello); c.fits && n > 1<<20-8<<10 {
			t.Errorf("%d apps with names of %d bytes: the hello has %d bytes", c.apps, c.name, n)
		}
	}
}

func resolve(v *catalog.View, app catalog.App) (string, error) {
	e, err := v.Find(app)
	if err != nil {
		return "", err
	}
	return e.Address(), nil
}
