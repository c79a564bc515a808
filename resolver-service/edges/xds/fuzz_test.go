package xds

import (
	"iter"
	"maps"
	"slices"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// stateOf is a state of a test: a version of each app's resources, 1 at least.
type stateOf struct {
	number uint64
	apps   map[resourceName]byte
}

func (s *stateOf) resource(_ kind, n resourceName) *resource {
	v, ok := s.apps[n]
	if !ok {
		return nil
	}
	return made(n.String(), &endpointv3.ClusterLoadAssignment{ClusterName: n.String(), Policy: &endpointv3.ClusterLoadAssignment_Policy{
		OverprovisioningFactor: wrapperspb.UInt32(uint32(v)),
	}})
}

func (s *stateOf) names(kind) iter.Seq[resourceName] {
	return func(yield func(resourceName) bool) {
		for n := range s.apps {
			if n.cluster == "" && !yield(n) {
				return
			}
		}
	}
}

func (s *stateOf) changed(_ kind, old state) iter.Seq[resourceName] {
	all := maps.Clone(s.apps)
	maps.Copy(all, old.(*stateOf).apps)
	return maps.Keys(all)
}

func (s *stateOf) same(state) bool  { return false }
func (s *stateOf) revision() uint64 { return s.number }

// fuzzed is a client and its stream, without a connection between them.
type fuzzed struct {
	t       *testing.T
	st      *stream
	settled bool
	now     *stateOf
	asked   [kinds]bool
	follows [kinds][]string
	all     [kinds]bool
	have    [kinds]map[string]byte // versions; none of what is empty
	nonces  [kinds][]string        // that are not answered yet
}

func newFuzzed(t *testing.T, delta bool) *fuzzed {
	f := &fuzzed{t: t, now: &stateOf{apps: map[resourceName]byte{}}}
	s := &Server{clients: newClients(2), counters: newCounters(), maker: &maker{}}
	s.hubs = hubs{server: s, all: map[hubKey]*hub{}}
	f.st = &stream{s: s, delta: delta, wake: make(chan struct{}, 1), send: f.take, hub: s.hubs.newHub()}
	f.st.place = f.st.hub.join(f.st)
	if err := s.clients.add(f.st); err != nil {
		t.Fatal(err)
	}
	for k := range f.have {
		f.have[k] = map[string]byte{}
	}
	return f
}

// take takes a response as a client does.
func (f *fuzzed) take(e encoded) error {
	put, url, nonce := map[string]byte{}, "", ""
	var removed []string
	add := func(value []byte) {
		var m endpointv3.ClusterLoadAssignment
		if err := proto.Unmarshal(value, &m); err != nil {
			f.t.Fatal(err)
		}
		put[m.GetClusterName()] = byte(m.GetPolicy().GetOverprovisioningFactor().GetValue())
	}
	if f.st.delta {
		var m discoveryv3.DeltaDiscoveryResponse
		if err := proto.Unmarshal(e, &m); err != nil {
			f.t.Fatal(err)
		}
		for _, r := range m.GetResources() {
			add(r.GetResource().GetValue())
		}
		url, nonce, removed = m.GetTypeUrl(), m.GetNonce(), m.GetRemovedResources()
	} else {
		var m discoveryv3.DiscoveryResponse
		if err := proto.Unmarshal(e, &m); err != nil {
			f.t.Fatal(err)
		}
		for _, r := range m.GetResources() {
			add(r.GetValue())
		}
		url, nonce = m.GetTypeUrl(), m.GetNonce()
	}
	k, _ := kindOf(url)
	if len(f.nonces[k]) > 0 && f.nonces[k][len(f.nonces[k])-1] == nonce {
		f.t.Fatalf("nonce %s came twice", nonce)
	}
	f.nonces[k] = append(f.nonces[k], nonce)
	if !f.st.delta && k.whole() {
		clear(f.have[k])
	}
	for name, version := range put {
		if f.have[k][name] = version; version == 0 {
			delete(f.have[k], name)
		}
	}
	for _, name := range removed {
		delete(f.have[k], name)
	}
	return nil
}

// ask follows and leaves names; "*" is all.
func (f *fuzzed) ask(k kind, follow, leave []string) {
	for _, name := range follow {
		if name == wildcard {
			f.all[k] = true
		} else if !slices.Contains(f.follows[k], name) {
			f.follows[k] = append(f.follows[k], name)
		}
	}
	for _, name := range leave {
		if name == wildcard {
			f.all[k] = false
		}
		f.follows[k] = slices.DeleteFunc(f.follows[k], func(n string) bool { return n == name })
	}
	for name := range f.have[k] { // a client forgets what it has left
		if !(f.all[k] && parseName(name).cluster == "") && !slices.Contains(f.follows[k], name) {
			delete(f.have[k], name)
		}
	}
	r := &request{url: k.url(), kind: k, subscribe: follow, unsubscribe: leave, names: slices.Clone(f.follows[k])}
	if f.all[k] {
		r.names = append(r.names, wildcard)
	}
	if !f.st.delta && len(f.nonces[k]) > 0 {
		r.nonce = f.nonces[k][len(f.nonces[k])-1]
		f.nonces[k] = nil
	}
	f.asked[k] = true
	f.answer(r)
}

func (f *fuzzed) answer(r *request) {
	if err := f.st.answer(r); err != nil {
		f.t.Fatal(err)
	}
}

// reply answers the responses of a type, of which a client refuses some.
func (f *fuzzed) reply(k kind, problem string) {
	all := f.nonces[k]
	f.nonces[k] = nil
	for _, nonce := range all {
		r := &request{url: k.url(), kind: k, nonce: nonce, problem: problem}
		if !f.st.delta {
			if r.names = slices.Clone(f.follows[k]); f.all[k] {
				r.names = append(r.names, wildcard)
			}
		}
		f.answer(r)
	}
}

// change gives an app another version; 0: it goes.
func (f *fuzzed) change(n resourceName, version byte) {
	next := &stateOf{f.now.number + 1, maps.Clone(f.now.apps)}
	if next.apps[n] = version; version == 0 {
		delete(next.apps, n)
	}
	f.now = next
	f.st.hub.advance(next, !f.settled)
}

// settle says that the service has settled.
func (f *fuzzed) settle() {
	f.settled = true
	f.st.hub.advance(f.now, false)
}

// FuzzStream has a client ask and answer as it likes while apps come, change and go. In the end
// it has what it follows, and nothing else.
func FuzzStream(f *testing.F) {
	f.Add(true, []byte{0, 0x10, 0x21, 0x32, 0x43, 0x54, 0x05, 0x16})
	f.Add(false, []byte{0, 0x10, 0x21, 0x32, 0x43, 0x54, 0x05, 0x16})
	f.Add(true, []byte("o7\x97"))        // it leaves a name that it still has by "*"
	f.Add(false, []byte("^\x8e0"))       // it leaves "*" and follows nothing
	f.Add(false, []byte("}0a\x00\x917")) // a name goes while it leaves it
	names := []string{"a.shop", "b.shop", "c.shop.west", wildcard}
	f.Fuzz(func(t *testing.T, delta bool, program []byte) {
		x := newFuzzed(t, delta)
		x.change(parseName(names[0]), 1)
		for _, op := range program[:min(len(program), 200)] {
			k, name, what := kind(op&3), names[op>>2&3], op>>4
			switch {
			case what < 5:
				if name != wildcard {
					x.change(parseName(name), what)
				}
			case what < 8:
				x.ask(k, []string{name}, nil)
			case what < 10:
				if x.asked[k] && (x.all[k] || len(x.follows[k]) > 1) { // to follow nothing means all in an old first request
					x.ask(k, nil, []string{name})
				}
			case what < 12:
				x.reply(k, "")
			case what == 12:
				x.reply(k, "no")
			case what == 15:
				x.settle()
			case x.asked[k]: // an answer to nothing
				x.answer(&request{url: k.url(), kind: k, nonce: "old", names: x.follows[k]})
			}
			select {
			case <-x.st.wake:
				if err := x.st.advance(); err != nil {
					t.Fatal(err)
				}
			default:
			}
		}
		x.settle()
		for range 100 { // until all is answered
			for k := range kinds {
				x.reply(k, "")
			}
			if err := x.st.advance(); err != nil {
				t.Fatal(err)
			}
		}
		for k := range kinds {
			want := map[string]byte{}
			for n, version := range x.now.apps {
				if x.asked[k] && (x.all[k] && n.cluster == "" || slices.Contains(x.follows[k], n.String())) {
					want[n.String()] = version
				}
			}
			if !delta && k == routes { // nothing in this protocol says that they have gone
				maps.DeleteFunc(x.have[k], func(name string, _ byte) bool { return want[name] == 0 })
			}
			if !maps.Equal(x.have[k], want) {
				t.Errorf("of %s the client has %v, want %v (it follows %v, all: %t)", k.short(), x.have[k], want, x.follows[k], x.all[k])
			}
		}
	})
}

func FuzzNames(f *testing.F) {
	for _, s := range []string{"orders.shop", "orders.shop.west", "", ".", "a..b", "isthmus-gateway", "*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if n := parseName(s); n.String() != s || parseName(n.String()) != n {
			t.Errorf("%q is %+v, whose name is %q", s, n, n.String())
		}
	})
}
