package peering

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func viewOf(revision uint64, exports ...*topology.PeerExport) *topology.PeerView {
	view := &topology.PeerView{Revision: revision}
	edits := make([]catalog.Edit[*topology.PeerExport], len(exports))
	for i, e := range exports {
		edits[i] = catalog.Edit[*topology.PeerExport]{App: e.App, Value: e}
	}
	view.Exports = view.Exports.With(edits...)
	return view
}

func messagesOf(t *testing.T, o *outbox, view *topology.PeerView) (all []*v1alpha1.ExportsResponse) {
	t.Helper()
	for m, err := range o.messages(view) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

func TestTheFirstMessageHasOnlyWhatThePeerDoesNotKnow(t *testing.T) {
	orders, ledger := export("orders", 2), export("ledger", 1)
	view := viewOf(7, orders, ledger)
	known := func(exports ...*topology.PeerExport) []*v1alpha1.Known {
		var all []*v1alpha1.Known
		for _, w := range message(t, exports).Put {
			all = append(all, &v1alpha1.Known{App: w.App, Digest: w.Digest})
		}
		return all
	}
	for _, c := range []struct {
		what  string
		known []*v1alpha1.Known
		want  string
	}{
		{"nothing known", nil, "+ledger:1 +orders:2"},
		{"all known", known(orders, ledger), ""},
		{"one is new", known(ledger), "+orders:2"},
		{"one has changed", known(export("orders", 1), ledger), "+orders:2"},
		{"one is gone", known(orders, ledger, export("gone", 1)), ""},
	} {
		all := messagesOf(t, newOutbox("east", c.known), view)
		k := newExportMirror()
		k.resume()
		if got := k.taken(t, all[0]); len(all) != 1 || got != c.want || all[0].Cluster != "east" || all[0].Revision != 7 || all[0].More {
			t.Errorf("%s: %q of %v, want %q", c.what, got, all, c.want)
		}
		if gone := len(all[0].Removed) == 1 && all[0].Removed[0].Id == "gone"; gone != (c.what == "one is gone") {
			t.Errorf("%s: removed %v", c.what, all[0].Removed)
		}
	}
}

func TestALargeSetGoesOutInMessagesOfBoundedSize(t *testing.T) {
	all := large()
	view := viewOf(7, all...)
	o := newOutbox("east", nil)
	first := messagesOf(t, o, view)
	k := newExportMirror()
	k.resume()
	for i, m := range first {
		if n := proto.Size(m); n > fullMessage+fullMessage/10 || n < fullMessage*9/10 && i < len(first)-1 {
			t.Errorf("message %d has %d bytes", i, n)
		}
		if last := i == len(first)-1; m.More == last {
			t.Errorf("message %d of %d says that there is more: %t", i, len(first), m.More)
		}
		k.receive(m)
	}
	if len(first) < 4 || len(k.exports) != len(all) || !k.synced {
		t.Errorf("%d messages, %d exports, complete %t", len(first), len(k.exports), k.synced)
	}
	later := messagesOf(t, o, viewOf(8))
	for _, m := range later {
		if m.More {
			t.Error("a difference says that the first set goes on")
		}
		k.receive(m)
	}
	if len(later) < 2 || len(k.exports) != 0 {
		t.Errorf("%d messages, %d exports left", len(later), len(k.exports))
	}
}

func TestAnExportThatIsTooLargeIsLeftOut(t *testing.T) {
	huge := export("huge", 1)
	for range maxExport/1000 + 1 {
		huge.Allow = append(huge.Allow, catalog.Allow{App: strings.Repeat("x", 1000)})
	}
	o := newOutbox("east", nil)
	var told string
	o.tooLarge = func(app catalog.App, _ int) { told = app.ID }
	all := messagesOf(t, o, viewOf(7, huge, export("orders", 1)))
	if len(all) != 1 || len(all[0].Put) != 1 || all[0].Put[0].App.Id != "orders" || told != "huge" {
		t.Errorf("%d messages, told of %q", len(all), told)
	}
}
