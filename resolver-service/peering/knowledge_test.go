package peering

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

func app(id string) catalog.App { return catalog.App{Namespace: "shop", ID: id} }

func export(id string, ready uint32) *topology.PeerExport {
	return &topology.PeerExport{App: app(id), Ready: ready, Allow: []catalog.Allow{{Cluster: "west", Namespace: "shop"}}}
}

func message(t testing.TB, put []*topology.PeerExport, removed ...string) *v1alpha1.ExportsResponse {
	t.Helper()
	m := &v1alpha1.ExportsResponse{Cluster: "east"}
	for _, e := range put {
		w, err := toWire(e)
		if err != nil {
			t.Fatal(err)
		}
		m.Put = append(m.Put, w)
	}
	for _, id := range removed {
		m.Removed = append(m.Removed, &v1alpha1.App{Namespace: "shop", Id: id})
	}
	return m
}

// names are what a change puts and deletes, in order.
func names(c topology.PeerChange) string {
	var all []string
	for _, p := range c.Put {
		all = append(all, fmt.Sprintf("+%s:%d", p.App.ID, p.Ready))
	}
	for _, a := range c.Delete {
		all = append(all, "-"+a.ID)
	}
	slices.Sort(all)
	text := strings.Join(all, " ")
	if c.Full {
		text = strings.TrimSpace("full " + text)
	}
	return text
}

func TestWhatAPeerSaysBecomesChanges(t *testing.T) {
	k := newKnowledge()
	for _, step := range []struct {
		what string
		m    *v1alpha1.ExportsResponse
		want string
	}{
		{"the first message is the full set", message(t, []*topology.PeerExport{export("orders", 2), export("ledger", 1)}), "full +ledger:1 +orders:2"},
		{"a renewal changes nothing", message(t, nil), ""},
		{"a difference", message(t, []*topology.PeerExport{export("orders", 3)}, "ledger"), "+orders:3 -ledger"},
		{"what is gone already is not gone twice", message(t, nil, "ledger", "never"), ""},
	} {
		c, err := k.take("east", step.m)
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		if got := names(c); got != step.want || c.Cluster != "east" {
			t.Errorf("%s: %q of %s, want %q", step.what, got, c.Cluster, step.want)
		}
	}
	if len(k.known()) != 1 {
		t.Errorf("knows %v", k.known())
	}
}

func TestAPeerThatExportsNothingHasSpoken(t *testing.T) {
	c, err := newKnowledge().take("east", message(t, nil))
	if err != nil || names(c) != "full" {
		t.Errorf("%q, %v", names(c), err)
	}
}

func TestABadExportIsRefusedByNameAndTheRestStand(t *testing.T) {
	for what, spoil := range map[string]func(*v1alpha1.Export){
		"no app":             func(e *v1alpha1.Export) { e.App = nil },
		"a bad app-id":       func(e *v1alpha1.Export) { e.App.Id = "Orders.x" },
		"an address of text": func(e *v1alpha1.Export) { e.Addresses = []string{"evil.example:1"} },
		"an address without": func(e *v1alpha1.Export) { e.Addresses = []string{"10.0.0.1:0"} },
		"too many addresses": func(e *v1alpha1.Export) { e.Addresses = make([]string, maxAddresses+1) },
		"too many callers":   func(e *v1alpha1.Export) { e.Allow = make([]*v1alpha1.Allow, maxAllow+1) },
	} {
		k := newKnowledge()
		if _, err := k.take("east", message(t, []*topology.PeerExport{export("orders", 1), export("ledger", 1)})); err != nil {
			t.Fatal(err)
		}
		m := message(t, []*topology.PeerExport{export("orders", 2), export("ledger", 2)})
		spoil(m.Put[0])
		c, err := k.take("east", m)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if !strings.Contains(names(c), "+ledger:2") || strings.Contains(names(c), "+orders") {
			t.Errorf("%s: %s", what, names(c))
		}
		if k.err() == nil {
			t.Errorf("%s: nothing is said of it", what)
		}
		if c, err := k.take("east", message(t, []*topology.PeerExport{export("orders", 3)})); err != nil || !strings.Contains(names(c), "+orders:3") {
			t.Errorf("%s: mended, but %s, %v", what, names(c), err)
		}
	}
}

func TestAPeerCantFloodThisCluster(t *testing.T) {
	k := newKnowledge()
	m := &v1alpha1.ExportsResponse{Cluster: "east"}
	for i := range maxExports + 1 {
		m.Put = append(m.Put, &v1alpha1.Export{App: &v1alpha1.App{Namespace: "shop", Id: fmt.Sprintf("a%d", i)}})
	}
	if _, err := k.take("east", m); err == nil || !strings.Contains(err.Error(), "at most 100000") {
		t.Errorf("taken: %v", err)
	}
	if c, err := k.take("east", message(t, nil)); err != nil || !c.Full {
		t.Errorf("what stands after that is half of something: %s, %v", names(c), err)
	}
}

func TestWhatAPeerSaysIsBoundedInBytes(t *testing.T) {
	k := newKnowledge()
	long := strings.Repeat("x", 40<<20)
	say := func(id string) error {
		e := export(id, 1)
		e.Allow[0].Namespace = long
		_, err := k.take("east", message(t, []*topology.PeerExport{e}))
		return err
	}
	for range 20 {
		if err := say("orders"); err != nil {
			t.Fatalf("the same export again: %v", err)
		}
	}
	var err error
	for i := 0; i < 20 && err == nil; i++ {
		err = say(fmt.Sprint("a", i))
	}
	if err == nil || !strings.Contains(err.Error(), "bytes; at most") || len(k.digests) != 0 || k.bytes != 0 {
		t.Errorf("taken: %v; %d exports of %d bytes are known", err, len(k.digests), k.bytes)
	}
}

func TestALongNameIsNotRepeated(t *testing.T) {
	for what, w := range map[string]*v1alpha1.Export{
		"app-id":  {App: &v1alpha1.App{Namespace: "shop", Id: strings.Repeat("A", 1<<20)}},
		"address": {App: &v1alpha1.App{Namespace: "shop", Id: "orders"}, Addresses: []string{strings.Repeat("A", 1<<20)}},
	} {
		k := newKnowledge()
		if _, err := k.take("east", &v1alpha1.ExportsResponse{Cluster: "east", Put: []*v1alpha1.Export{w}}); err != nil {
			t.Fatal(err)
		}
		if text := k.err().Error(); len(text) > 500 {
			t.Errorf("%s: operators are told %d bytes", what, len(text))
		}
		if _, err := k.take("east", &v1alpha1.ExportsResponse{Cluster: "east", Removed: []*v1alpha1.App{w.App}}); err != nil || k.err() != nil {
			t.Errorf("%s: removed, and still refused: %v, %v", what, k.err(), err)
		}
	}
}

func TestOfTwoExportsOfOneAppTheLastCounts(t *testing.T) {
	k := newKnowledge()
	twice := message(t, []*topology.PeerExport{export("orders", 1), export("orders", 2)})
	if c, err := k.take("east", twice); err != nil || names(c) != "full +orders:2" {
		t.Errorf("%q, %v", names(c), err)
	}
	spoiled := message(t, []*topology.PeerExport{export("orders", 3), {App: app("orders"), Addresses: []string{"nowhere"}}})
	if c, err := k.take("east", spoiled); err != nil || names(c) != "-orders" {
		t.Errorf("%q, %v; what can't be used at last must not stand", names(c), err)
	}
}

func TestTheFirstMessageHasOnlyWhatThePeerDoesNotKnow(t *testing.T) {
	orders, ledger := export("orders", 2), export("ledger", 1)
	view := &topology.PeerView{Revision: 7}
	view.Exports = view.Exports.With(
		catalog.Edit[*topology.PeerExport]{App: orders.App, Value: orders},
		catalog.Edit[*topology.PeerExport]{App: ledger.App, Value: ledger},
	)
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
		{"nothing known", nil, "full +ledger:1 +orders:2"},
		{"all known", known(orders, ledger), "full"},
		{"one is new", known(ledger), "full +orders:2"},
		{"one has changed", known(export("orders", 1), ledger), "full +orders:2"},
		{"one is gone", known(orders, ledger, export("gone", 1)), "full"},
	} {
		m, err := newOutbox("east", c.known).message(view)
		if err != nil {
			t.Fatal(err)
		}
		change, err := newKnowledge().take("east", m)
		if err != nil || names(change) != c.want || m.Cluster != "east" || m.Revision != 7 {
			t.Errorf("%s: %q, want %q (%v)", c.what, names(change), c.want, err)
		}
		if gone := len(m.Removed) == 1 && m.Removed[0].Id == "gone"; gone != (c.what == "one is gone") {
			t.Errorf("%s: removed %v", c.what, m.Removed)
		}
	}
}

// FuzzMessage holds that no message of a peer brings anything into the topology that
// the rules of names and addresses don't allow.
func FuzzMessage(f *testing.F) {
	seed, err := proto.Marshal(message(f, []*topology.PeerExport{export("orders", 2)}, "ledger"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, text []byte) {
		var m v1alpha1.ExportsResponse
		if proto.Unmarshal(text, &m) != nil {
			return
		}
		k := newKnowledge()
		c, err := k.take("east", &m)
		if err != nil {
			return
		}
		var bad error
		for _, p := range c.Put {
			bad = errors.Join(bad, p.App.Check())
		}
		if bad != nil {
			t.Error(bad)
		}
	})
}
