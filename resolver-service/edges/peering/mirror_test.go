package peering

import (
	"fmt"
	"maps"
	"net/netip"
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

// part is an incomplete message of an initial set.
func part(m *v1alpha1.ExportsResponse) *v1alpha1.ExportsResponse {
	m.More = true
	return m
}

// names are the apps that a change puts and deletes, in order.
func names(c topology.PeerChange) string {
	var all []string
	for _, p := range c.Put {
		all = append(all, fmt.Sprintf("+%s:%d", p.App.ID, p.Ready))
	}
	for _, a := range c.Delete {
		all = append(all, "-"+a.ID)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// taken is the change that a message causes in the topology.
func (k *exportMirror) taken(t *testing.T, m *v1alpha1.ExportsResponse) string {
	t.Helper()
	k.receive(m)
	change, all := k.nextChange("east", maxApply)
	if !all || change.Cluster != "east" || change.Full || change.Lease != topology.Unchanged {
		t.Errorf("change %+v", change)
	}
	return names(change)
}

func (k *exportMirror) why() string {
	var all []string
	for app, err := range k.refused {
		all = append(all, app.String()+": "+err.Error())
	}
	return strings.Join(all, "\n")
}

func TestWhatAPeerSaysBecomesChanges(t *testing.T) {
	k := newExportMirror()
	k.resume()
	for _, step := range []struct {
		what     string
		m        *v1alpha1.ExportsResponse
		want     string
		complete bool
	}{
		{"the first set begins", part(message(t, []*topology.PeerExport{export("orders", 2)})), "+orders:2", false},
		{"and ends", message(t, []*topology.PeerExport{export("ledger", 1)}), "+ledger:1", true},
		{"a renewal changes nothing", message(t, nil), "", true},
		{"a difference", message(t, []*topology.PeerExport{export("orders", 3)}, "ledger"), "+orders:3 -ledger", true},
		{"what is gone already is not gone twice", message(t, nil, "ledger", "never"), "", true},
	} {
		if got := k.taken(t, step.m); got != step.want || k.synced != step.complete {
			t.Errorf("%s: %q, complete %t; want %q, %t", step.what, got, k.synced, step.want, step.complete)
		}
	}
	if len(k.resume()) != 1 || k.ready != 1 {
		t.Errorf("knows %v, %d ready", k.exports, k.ready)
	}
}

func TestAPeerThatExportsNothingHasSpoken(t *testing.T) {
	k := newExportMirror()
	k.resume()
	if got := k.taken(t, message(t, nil)); got != "" || !k.synced {
		t.Errorf("%q, complete %t", got, k.synced)
	}
}

func TestWhatAFirstSetDoesNotNameIsGoneOnceItIsComplete(t *testing.T) {
	k := newExportMirror()
	k.resume()
	k.taken(t, message(t, []*topology.PeerExport{export("orders", 2), export("ledger", 1), export("stock", 1)}))
	k.resume()
	// The peer ignored the known exports: they were more than fit into the request.
	for app, s := range k.exports {
		s.stream = 0
		k.exports[app] = s
	}
	if got := k.taken(t, part(message(t, []*topology.PeerExport{export("orders", 2)}))); got != "+orders:2" {
		t.Errorf("in the middle: %q", got)
	}
	k.resume() // the stream ends, and a new one resumes
	if len(k.exports) != 3 {
		t.Errorf("the peer broke off, and what is known is %v", k.exports)
	}
	for app, s := range k.exports {
		s.stream = 0
		k.exports[app] = s
	}
	if got := k.taken(t, message(t, []*topology.PeerExport{export("orders", 2)})); got != "+orders:2 -ledger -stock" {
		t.Errorf("complete: %q", got)
	}
}

func TestAFirstSetKeepsWhatWasNamedAsKnown(t *testing.T) {
	k := newExportMirror()
	k.resume()
	k.taken(t, message(t, []*topology.PeerExport{export("orders", 2), export("ledger", 1)}))
	if known := k.resume(); len(known) != 2 {
		t.Fatalf("known %v", known)
	}
	if got := k.taken(t, message(t, nil, "ledger")); got != "-ledger" {
		t.Errorf("%q", got)
	}
}

func TestARequestIsBounded(t *testing.T) {
	k := newExportMirror()
	k.resume()
	namespace := strings.Repeat("n", 60)
	for i := range maxExports {
		a := catalog.App{Namespace: namespace, ID: fmt.Sprintf("%060d", i)}
		k.exports[a] = mirroredExport{}
	}
	known := k.resume()
	if n := proto.Size(&v1alpha1.ExportsRequest{Known: known}); n > maxKnownBytes || n < maxKnownBytes/2 {
		t.Errorf("%d apps in %d bytes", len(known), n)
	}
	if k.receive(message(t, nil)); len(k.exports) != len(known) {
		t.Errorf("%d apps stand of which %d were named", len(k.exports), len(known))
	}
}

func TestALargeChangeIsToldInParts(t *testing.T) {
	k := newExportMirror()
	k.resume()
	m := &v1alpha1.ExportsResponse{}
	for i := range 2*maxApply + 1 {
		m.Put = append(m.Put, &v1alpha1.Export{App: &v1alpha1.App{Namespace: "shop", Id: fmt.Sprint("a", i)}})
	}
	k.receive(m)
	var sizes []int
	for all := false; !all; {
		var c topology.PeerChange
		c, all = k.nextChange("east", maxApply)
		sizes = append(sizes, len(c.Put))
	}
	if !slices.Equal(sizes, []int{maxApply, maxApply, 1}) {
		t.Errorf("parts of %v", sizes)
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
		"too many shards":    func(e *v1alpha1.Export) { e.Shards = catalog.MaxShards + 1 },
		"too many ready":     func(e *v1alpha1.Export) { e.Ready = 1 << 31 },
		"too many draining":  func(e *v1alpha1.Export) { e.Draining = maxInstances + 1 },
	} {
		k := newExportMirror()
		k.resume()
		k.taken(t, message(t, []*topology.PeerExport{export("orders", 1), export("ledger", 1)}))
		m := message(t, []*topology.PeerExport{export("orders", 2), export("ledger", 2)})
		spoil(m.Put[0])
		if got := k.taken(t, m); !strings.Contains(got, "+ledger:2") || strings.Contains(got, "+orders") {
			t.Errorf("%s: %s", what, got)
		}
		if k.why() == "" {
			t.Errorf("%s: nothing is said of it", what)
		}
		if got := k.taken(t, message(t, []*topology.PeerExport{export("orders", 3)})); !strings.Contains(got, "+orders:3") {
			t.Errorf("%s: mended, but %s", what, got)
		}
	}
}

// inZones is an export with zones, of named instances or of addresses.
func inZones(direct bool) *topology.PeerExport {
	e := export("orders", 2)
	e.Zones, e.Versions = catalog.NewLabels([]string{"b", "a"}), catalog.NewLabels([]string{"2.1", ""})
	if e.Instances, e.Addresses = []uint32{7, 8}, nil; direct {
		e.Instances, e.Addresses = nil, []string{"10.2.0.1:50002", "10.2.0.2:50002"}
	}
	return e
}

func TestZonesArrive(t *testing.T) {
	for _, direct := range []bool{false, true} {
		k := newExportMirror()
		k.resume()
		k.receive(message(t, []*topology.PeerExport{inZones(direct)}))
		if got := k.pending[inZones(direct).App]; got == nil || got.Zones.String() != "a: 1, b: 1" || got.Zones.At(0) != "b" || got.Versions.String() != "2.1: 1, unknown: 1" {
			t.Errorf("%+v", got)
		}
		plain := inZones(direct)
		plain.Zones = nil
		told, _ := toWire(plain)
		if w, _ := toWire(inZones(direct)); w.Digest == told.Digest {
			t.Error("the digest does not tell them apart")
		}
		for what, edit := range map[string]func(*v1alpha1.Export){
			"both by name and by address": func(w *v1alpha1.Export) {
				w.Instances, w.Addresses = []uint32{7, 8}, []string{"10.2.0.1:50002", "10.2.0.2:50002"}
			},
			"of more instances than there are": func(w *v1alpha1.Export) { w.ZoneOf = []byte{1, 2, 1} },
			"that there are not":               func(w *v1alpha1.Export) { w.ZoneOf = []byte{1, 3} },
			"beside versions of too few":       func(w *v1alpha1.Export) { w.VersionOf = []byte{1} },
			"of no instance at all":            func(w *v1alpha1.Export) { w.Reset(); w.Zones = []string{"a"} },
			"beside versions that can't be":    func(w *v1alpha1.Export) { w.Versions = []string{"a\x1b"} },
		} {
			w, _ := toWire(inZones(direct))
			edit(w)
			if e, err := fromWire(w); err == nil {
				t.Errorf("zones %s: taken as %v", what, e)
			}
		}
	}
}

// TestZonesArriveOnOneNetwork: what the topology tells such a peer is taken.
func TestZonesArriveOnOneNetwork(t *testing.T) {
	orders := catalog.App{Namespace: "shop", ID: "orders"}
	for _, network := range []string{"net-1", "net-2"} {
		g := topology.NewGraph(topology.Config{Cluster: "west", Network: "net-1", Domain: catalog.DefaultDomain})
		east := &catalog.Cluster{Name: "east", Network: network, Gateways: []string{"10.9.0.1:15443"}}
		i := catalog.Instance{ID: "1", App: orders, Address: netip.MustParseAddrPort("10.1.1.1:50002"), Zone: "a"}
		g.Apply(topology.Change{
			Objects:   &topology.ObjectChange{Full: true, Put: []catalog.Object{east, &catalog.AppExport{App: orders, Allow: []catalog.Allow{{}}}}},
			Instances: []topology.InstanceChange{{Source: "test", Put: []catalog.Instance{i}}},
		})
		e, _ := g.Peer("east", nil).Exports.Get(orders)
		w, err := toWire(e)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fromWire(w); err != nil || got.Zones.At(0) != "a" || len(got.Addresses) == 1 != (network == "net-1") {
			t.Errorf("%s: %+v, %v", network, got, err)
		}
	}
}

func TestWhatIsToldOfShardsAndDrainingArrives(t *testing.T) {
	e := export("orders", 4)
	e.Draining, e.Shards = 2, catalog.MaxShards
	k := newExportMirror()
	k.resume()
	k.receive(message(t, []*topology.PeerExport{e}))
	if got := k.pending[e.App]; got == nil || got.Draining != 2 || got.Shards != catalog.MaxShards || got.Ready != 4 {
		t.Errorf("%+v", got)
	}
	plain, _ := toWire(export("orders", 4))
	if full, _ := toWire(e); full.Digest == plain.Digest {
		t.Error("the digest does not tell them apart")
	}
}

func TestAPeerCantFloodThisCluster(t *testing.T) {
	k := newExportMirror()
	k.resume()
	m := &v1alpha1.ExportsResponse{Cluster: "east"}
	for i := range maxExports + 1 {
		m.Put = append(m.Put, &v1alpha1.Export{App: &v1alpha1.App{Namespace: "shop", Id: fmt.Sprintf("a%d", i)}})
	}
	k.receive(m)
	if len(k.exports) != maxExports || !strings.Contains(k.why(), "shop/a100000: the cluster exports more than 100000 apps") {
		t.Errorf("%d exports are known; refused: %s", len(k.exports), k.why())
	}
	k.receive(&v1alpha1.ExportsResponse{Put: m.Put[maxExports:], Removed: []*v1alpha1.App{m.Put[0].App}})
	if len(k.exports) != maxExports || len(k.refused) != 0 {
		t.Errorf("there is room, but %d exports are known; refused: %s", len(k.exports), k.why())
	}
}

func TestWhatAPeerSaysIsBoundedInBytes(t *testing.T) {
	k := newExportMirror()
	k.resume()
	long := strings.Repeat("x", 10<<20)
	say := func(id string) {
		e := export(id, 1)
		e.Allow[0].Namespace = long
		k.receive(message(t, []*topology.PeerExport{e}))
	}
	for range 20 {
		if say("orders"); k.why() != "" {
			t.Fatalf("the same export again: %s", k.why())
		}
	}
	for i := 0; i < 20 && k.why() == ""; i++ {
		say(fmt.Sprint("a", i))
	}
	if !strings.Contains(k.why(), "bytes, which is the limit") || k.bytes > maxBytes || len(k.exports) != 6 {
		t.Errorf("refused: %s; %d exports of %d bytes are known", k.why(), len(k.exports), k.bytes)
	}
	for app := range maps.Clone(k.exports) {
		k.remove(app)
	}
	if k.bytes != 0 || k.ready != 0 {
		t.Errorf("nothing is known, which takes %d bytes, and %d are ready", k.bytes, k.ready)
	}
}

func TestALongNameIsNotRepeated(t *testing.T) {
	for what, w := range map[string]*v1alpha1.Export{
		"app-id":  {App: &v1alpha1.App{Namespace: "shop", Id: strings.Repeat("A", 1<<20)}},
		"address": {App: &v1alpha1.App{Namespace: "shop", Id: "orders"}, Addresses: []string{strings.Repeat("A", 1<<20)}},
	} {
		k := newExportMirror()
		k.resume()
		k.taken(t, &v1alpha1.ExportsResponse{Put: []*v1alpha1.Export{w}})
		if text := k.why(); len(text) > 500 {
			t.Errorf("%s: operators are told %d bytes", what, len(text))
		}
		if k.taken(t, &v1alpha1.ExportsResponse{Removed: []*v1alpha1.App{w.App}}); k.why() != "" {
			t.Errorf("%s: removed, and still refused: %v", what, k.why())
		}
	}
}

func TestOfTwoExportsOfOneAppTheLastCounts(t *testing.T) {
	k := newExportMirror()
	k.resume()
	if got := k.taken(t, message(t, []*topology.PeerExport{export("orders", 1), export("orders", 2)})); got != "+orders:2" {
		t.Errorf("%q", got)
	}
	spoiled := message(t, []*topology.PeerExport{export("orders", 3), {App: app("orders"), Addresses: []string{"nowhere"}}})
	if got := k.taken(t, spoiled); got != "-orders" {
		t.Errorf("%q; what can't be used at last must not stand", got)
	}
}

// FuzzMessages checks that no messages of a peer bring names or addresses into the topology that
// the rules forbid, that the topology gets just the known exports, and that the sums are right.
func FuzzMessages(f *testing.F) {
	seed := func(messages ...*v1alpha1.ExportsResponse) {
		var text []byte
		for _, m := range messages {
			one, err := proto.Marshal(m)
			if err != nil {
				f.Fatal(err)
			}
			text = append(append(text, byte(len(one)>>8), byte(len(one))), one...)
		}
		f.Add(text)
	}
	seed(message(f, []*topology.PeerExport{export("orders", 2)}, "ledger"))
	seed(message(f, []*topology.PeerExport{inZones(false)}), message(f, []*topology.PeerExport{inZones(true)}))
	seed(part(message(f, []*topology.PeerExport{export("orders", 2)})), message(f, []*topology.PeerExport{export("ledger", 0)}, "orders"))
	f.Fuzz(func(t *testing.T, text []byte) {
		k := newExportMirror()
		k.resume()
		told := map[catalog.App]uint32{}
		for len(text) > 2 {
			n := min(int(text[0])<<8|int(text[1]), len(text)-2)
			var m v1alpha1.ExportsResponse
			err := proto.Unmarshal(text[2:2+n], &m)
			if text = text[2+n:]; err != nil {
				k.resume() // the stream ends, and a new one resumes
				continue
			}
			k.receive(&m)
			for all := false; !all; {
				var c topology.PeerChange
				c, all = k.nextChange("east", 3)
				for _, app := range c.Delete {
					delete(told, app)
				}
				for _, p := range c.Put {
					if err := p.App.Check(); err != nil || p.Shards > catalog.MaxShards {
						t.Errorf("%+v: %v", p, err)
					}
					told[p.App] = p.Ready
				}
			}
			ready, bytes := 0, 0
			for app, s := range k.exports {
				if bytes += int(s.bytes); s.ready {
					ready++
				}
				if count, ok := told[app]; !ok || s.ready != (count > 0) {
					t.Errorf("%s is known, and told is %d, %t", app, count, ok)
				}
			}
			if len(told) != len(k.exports) || ready != k.ready || bytes != k.bytes {
				t.Errorf("told %d of %d; %d of %d ready; %d of %d bytes", len(told), len(k.exports), k.ready, ready, k.bytes, bytes)
			}
		}
	})
}

// TestCallersThatAreNotNamedCountAsWhatTheyTake, since an empty one takes 2 bytes of a message.
func TestCallersThatAreNotNamedCountAsWhatTheyTake(t *testing.T) {
	k := newExportMirror()
	export := &v1alpha1.Export{App: &v1alpha1.App{Namespace: "shop", Id: "orders"}}
	for range maxAllow {
		export.Allow = append(export.Allow, &v1alpha1.Allow{})
	}
	k.receive(&v1alpha1.ExportsResponse{Put: []*v1alpha1.Export{export}})
	if k.bytes < 40*maxAllow {
		t.Errorf("%d callers count as %d bytes", maxAllow, k.bytes)
	}
}
