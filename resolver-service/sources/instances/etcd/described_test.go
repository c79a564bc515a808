package etcd

import (
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// facts are what a replica of a test has in common with others.
type facts struct {
	mu  sync.Mutex
	all map[string]string
}

func (f *facts) common() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.all)
}

func (f *facts) set(what, value string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[what] = value
}

// described starts a replica that says something of itself, with leases of a length.
func (p *place) described(t *testing.T, name string, ttl time.Duration, domain string) (*follower, *Source, *facts) {
	t.Helper()
	c := p.config(t, p.Server.Addr(), p.user)
	c.TTL = ttl
	s, f := openAs(t, c, name), &facts{all: map[string]string{"trust domain": domain}}
	s.Describe(f.common)
	run(t, s.Run)
	return follow(t, s), s, f
}

func (f *follower) awaitRefusal(t *testing.T, words ...string) {
	t.Helper()
	serverstest.Await(t, "it is told of "+strings.Join(words, ", "), func() bool {
		status := f.Status()
		if len(words) == 0 {
			return status.RefusedCount == 0
		}
		return status.RefusedCount == 1 && containsAll(status.Refused[0].Where+": "+status.Refused[0].Err.Error(), words)
	})
}

// containsAll tells whether every word stands in a text.
func containsAll(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// Replicas of two clusters that share a prefix by mistake, or of one while its configuration
// changes, are named, and nothing that they say is dropped.
func TestReplicasThatDifferAreNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, &plain)
	first, _, _ := p.described(t, "r1", 20*time.Second, "a.example")
	second, writes, says := p.described(t, "r2", 20*time.Second, "b.example")
	writes.registers(orders("a", "10.0.0.1:50002"), func() {})
	first.awaitRefusal(t, `replica "r2"`, `trust domain is "b.example", and here "a.example"`, "instances.etcd.prefix", "new configuration", "called west too")
	second.awaitRefusal(t, `replica "r1"`, `trust domain is "a.example", and here "b.example"`)
	first.await(t, "shop/orders/a=10.0.0.1:50002")
	says.set("trust domain", "a.example")
	first.awaitRefusal(t)
	second.awaitRefusal(t)
	first.await(t, "shop/orders/a=10.0.0.1:50002")
}

// Two replicas of one name are most likely of two clusters, or of one that nobody can tell
// apart: each would take what the other restores for its own.
func TestReplicasOfOneNameAreNamed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, &plain)
	first, _, _ := p.described(t, "r1", 10*time.Second, "a.example")
	c := p.config(t, p.Server.Addr(), p.user)
	c.TTL = 10 * time.Second
	other := openAs(t, c, "r1")
	end := run(t, other.Run)
	second := follow(t, other)
	second.awaitRefusal(t, `replica "r1"`, "name of its own")
	first.awaitRefusal(t, `replica "r1"`, "name of its own", "instances.etcd.prefix")
	end()
	first.awaitRefusal(t) // with its lease
}

func TestWhoIsNoStranger(t *testing.T) {
	const ours, theirs = leasesPerReplica, 2 * leasesPerReplica // 40 in hexadecimal
	self := member{Replica: "r1", Common: map[string]string{"domain": "isthmus.internal", "network": ""}}
	come := func(value string) pair {
		return pair{key: replicas + "40", value: []byte(value), lease: theirs, revision: 1}
	}
	for _, c := range []struct {
		what  string
		steps func(o *replicated)
		want  string // empty: no stranger
	}{
		{"one that says the same", func(o *replicated) {
			o.replica(come(`{"replica":"r2","common":{"domain":"isthmus.internal","network":""}}`))
		}, ""},
		{"one of an older version", func(o *replicated) { o.replica(come(`{"replica":"r2"}`)) }, ""},
		{"one of a newer version", func(o *replicated) { o.replica(come(`{"replica":"r2","common":{"colour":"red"}}`)) }, ""},
		{"one that can't be read", func(o *replicated) { o.replica(come(`{"replica":`)) }, ""},
		{"one that differs", func(o *replicated) { o.replica(come(`{"replica":"r2","common":{"network":"n"}}`)) }, `its network is "n", and here ""`},
		{"one that differed", func(o *replicated) {
			o.replica(come(`{"replica":"r2","common":{"network":"n"}}`))
			o.replica(pair{key: replicas + "40", deleted: true, revision: 2})
		}, ""},
		{"our previous run", func(o *replicated) {
			o.replica(come(`{"replica":"r1"}`))
			o.replica(pair{key: replicas + "40", deleted: true, revision: 2})
			o.previousRunEnded()
		}, ""},
		{"one of our name that stays", func(o *replicated) {
			o.replica(come(`{"replica":"r1"}`))
			o.previousRunEnded()
			o.replica(come(`{"replica":"r1","settled":true}`))
		}, "has the name of this one"},
		{"one of our name that comes later", func(o *replicated) {
			o.previousRunEnded()
			o.replica(come(`{"replica":"r1"}`))
		}, "has the name of this one"},
		{"one of our name, while it may be our previous run", func(o *replicated) { o.replica(come(`{"replica":"r1"}`)) }, ""},
		{"ourselves", func(o *replicated) {
			p := come(`{"replica":"r1","common":{"network":"n"}}`)
			p.key, p.lease = replicas+"20", ours
			o.replica(p)
			o.previousRunEnded()
		}, ""},
		{"one that writes more than is read", func(o *replicated) {
			o.replica(come(`{"replica":"` + strings.Repeat("x", maxValue) + `","common":{"network":"n"}}`))
		}, ""},
		{"one with a long name and odd characters", func(o *replicated) {
			o.replica(come(`{"replica":"` + strings.Repeat("x", 1000) + `","common":{"network":"\u001b[31m"}}`))
		}, `its network is "\x1b[31m"`},
	} {
		o := newReplicated()
		c.steps(o)
		all := o.strangers(self, ours, "west")
		switch {
		case c.want == "" && len(all) > 0:
			t.Errorf("%s: %v", c.what, all)
		case c.want != "" && (len(all) != 1 || !strings.Contains(all[0].Err.Error(), c.want) || len(all[0].Where) > 200):
			t.Errorf("%s: %v, want %q", c.what, all, c.want)
		}
	}
}
