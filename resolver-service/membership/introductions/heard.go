package introductions

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Config describes this cluster.
type Config struct {
	Cluster string
	// Domains are the trust domains of this cluster, the own first, which is empty where there is no
	// identity; false: they are not known yet. It may be called concurrently.
	Domains func() (all []string, known bool)
	// Anchors are all roots of this cluster, in PEM, also those that came from others so that their
	// sidecars are believed; none where there is no identity. Authority are those of them that its own
	// certificate chains to. Both may be called concurrently.
	Anchors   func() ([]byte, error)
	Authority func() (roots []byte, domain string, err error)
	// Reachable refuses an address that no gateway of another cluster has. It may be called concurrently.
	Reachable func(netip.AddrPort) error
	File      string // keeps introductions; empty: none does
}

// Deriver takes objects that derive from introductions, and logs them under what. It calls derive,
// which adds them to a change, while no other change of objects is made.
type Deriver interface {
	Derive(what string, derive func(*configstore.Change)) error
}

// Heard has the introductions of all introducers. An introducer
// is a cluster whose object, which was written, has spec.introduces. It is safe for concurrent use.
type Heard struct {
	cfg     Config
	log     *slog.Logger
	deriver Deriver
	version live.Value[uint64] // of the introductions to be saved

	mu      sync.Mutex
	written map[string]*catalog.Cluster // Cluster objects
	domains map[string][]string         // of written, the clusters that have a trust domain
	by      map[string]*introducer
	order   []string                                   // the introducers, by name: of two that differ the first counts
	derived map[string]*catalog.Cluster                // that the deriver has
	saved   map[string]*v1alpha1.IntroductionsResponse // of introducers before the objects are known
}

// introducer is one cluster that may introduce others.
type introducer struct {
	object *catalog.Cluster
	heard  map[string]*introduced
	bytes  int
	over   map[string]bool // names beyond the bounds
	ended  chan struct{}   // closed once it may introduce none, or begins anew
}

// introduced is one cluster by the word of one introducer.
type introduced struct {
	said   *v1alpha1.Introduction
	digest uint64           // of what was said, by this cluster's own count: see digestOf
	object *catalog.Cluster // nil: it can't be used
	err    error
	size   int
}

// NewHeard makes Heard with the introductions in the file. Call SetDeriver before it hears any.
func NewHeard(cfg Config, log *slog.Logger) *Heard {
	return &Heard{
		cfg: cfg, log: log, written: map[string]*catalog.Cluster{}, domains: map[string][]string{},
		by: map[string]*introducer{}, derived: map[string]*catalog.Cluster{}, saved: load(cfg.File, log),
	}
}

// SetDeriver sets the taker of derived objects.
func (h *Heard) SetDeriver(d Deriver) { h.deriver = d }

// Add adds derived objects to a change of written ones. Its first change must be Full.
func (h *Heard) Add(c *configstore.Change) {
	h.mu.Lock()
	defer h.mu.Unlock()
	touched, domains := names{}, names{}
	all := false
	for i := range c.Objects {
		if object, ok := c.Objects[i].Object.(*catalog.Cluster); ok {
			all = h.write(object.Name, object, touched, domains) || all
		}
	}
	for _, key := range c.Deleted {
		if key.Kind == catalog.KindCluster {
			all = h.write(key.Name, nil, touched, domains) || all
		}
	}
	h.touch(touched, func(in *introduced) bool {
		return all || len(domains) > 0 && slices.ContainsFunc(trustDomains(in.object), func(d string) bool { return domains[d] })
	})
	if c.Full {
		h.saved = nil
	}
	h.derive(touched, c)
}

// Foresee adds to a change of written objects, which is not made, what would derive from it.
func (h *Heard) Foresee(c *configstore.Change) {
	isCluster := func(key catalog.Key) bool { return key.Kind == catalog.KindCluster }
	if !slices.ContainsFunc(c.Objects, func(o configstore.Stored) bool { return isCluster(o.Object.Key()) }) && !slices.ContainsFunc(c.Deleted, isCluster) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	then := &Heard{
		cfg: h.cfg, log: h.log, written: maps.Clone(h.written), domains: maps.Clone(h.domains),
		by: make(map[string]*introducer, len(h.by)), order: h.order, derived: maps.Clone(h.derived), saved: h.saved,
	}
	for name, i := range h.by {
		then.by[name] = &introducer{object: i.object, heard: i.heard, bytes: i.bytes, over: i.over, ended: make(chan struct{})}
	}
	then.Add(c)
}

type names map[string]bool

// write takes a written object; nil: there is none any more. It adds the trust domains of which an
// introduced cluster may count or not by that, and tells whether any may.
func (h *Heard) write(name string, object *catalog.Cluster, touched, domains names) (all bool) {
	was := h.written[name]
	touched[name] = true
	if object != nil {
		h.written[name] = object
	} else {
		delete(h.written, name)
	}
	before, now := trustDomains(was), trustDomains(object)
	for _, d := range before {
		h.domains[d] = slices.DeleteFunc(slices.Clone(h.domains[d]), func(other string) bool { return other == name })
		if len(h.domains[d]) == 0 {
			delete(h.domains, d)
		}
	}
	for _, d := range now {
		h.domains[d] = append(h.domains[d], name)
	}
	h.introduce(name, object, touched)
	if slices.Equal(before, now) && rootsOf(was) == rootsOf(object) {
		return false
	}
	for _, d := range slices.Concat(before, now) {
		domains[d] = true
	}
	return name == h.cfg.Cluster
}

func rootsOf(c *catalog.Cluster) string {
	if c == nil {
		return ""
	}
	return c.Trust.Roots
}

// introduce takes the rule for an introducer from its object.
func (h *Heard) introduce(name string, object *catalog.Cluster, touched names) {
	i := h.by[name]
	may := object != nil && object.Introduces != nil && name != h.cfg.Cluster
	switch {
	case i == nil && may:
		i = &introducer{object: object, heard: map[string]*introduced{}, over: map[string]bool{}, ended: make(chan struct{})}
		h.by[name] = i
		for _, in := range read(h.saved[name].GetPut()) {
			i.put(in)
		}
	case i != nil && !may:
		close(i.ended)
		delete(h.by, name)
		h.changed()
	case i != nil:
		i.object = object
	default:
		return
	}
	h.order = slices.Sorted(maps.Keys(h.by))
	for cluster := range i.heard {
		touched[cluster] = true
	}
}

// touch adds the clusters of which which is true of what somebody said.
func (h *Heard) touch(touched names, which func(*introduced) bool) {
	for _, i := range h.by {
		for cluster, in := range i.heard {
			if which(in) {
				touched[cluster] = true
			}
		}
	}
}

// Known begins to hear a cluster: it returns its introductions so far, and a channel that is closed
// once it has to say all anew, or nothing. The channel is nil if the cluster may introduce none.
func (h *Heard) Known(introducer string) (known []*v1alpha1.KnownIntroduction, ended <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i := h.by[introducer]
	if i == nil {
		return nil, nil
	}
	clear(i.over)
	for cluster, in := range i.heard {
		known = append(known, &v1alpha1.KnownIntroduction{Cluster: cluster, Digest: in.digest})
	}
	return known, i.ended
}

// Hear takes a message of an introducer, and returns once lookups follow. It keeps the message.
func (h *Heard) Hear(introducer string, m *v1alpha1.IntroductionsResponse) error {
	if len(m.GetPut()) > MaxClusters || len(m.GetRemoved()) > 2*MaxClusters {
		return fmt.Errorf("a message introduces %d clusters and takes back %d; at most %d and %d are taken", len(m.GetPut()), len(m.GetRemoved()), MaxClusters, 2*MaxClusters)
	}
	put := read(m.GetPut()) // which takes longest, and so before changes of objects wait for it
	return h.deriver.Derive("introduced clusters changed", func(c *configstore.Change) {
		h.mu.Lock()
		defer h.mu.Unlock()
		i := h.by[introducer]
		if i == nil {
			return
		}
		touched := names{}
		for _, name := range m.GetRemoved() {
			i.drop(name)
			touched[name] = true
		}
		for _, in := range put {
			i.put(in)
			touched[in.name()] = true
		}
		h.changed()
		h.derive(touched, c)
	})
}

// Follow derives anew by each certificate and bundle of roots of this cluster, until ctx ends. changed
// is closed once there is another.
func (h *Heard) Follow(ctx context.Context, changed func() <-chan struct{}) error {
	for {
		next := changed()
		if err := h.Reconsider(); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil
		}
	}
}

// Reconsider derives anew, since this cluster's trust domains or roots are known or have changed.
func (h *Heard) Reconsider() error {
	return h.deriver.Derive("introduced clusters changed", func(c *configstore.Change) {
		h.mu.Lock()
		defer h.mu.Unlock()
		touched := names{}
		h.touch(touched, func(*introduced) bool { return true })
		h.derive(touched, c)
	})
}

func (i *introducer) drop(name string) {
	if in := i.heard[name]; in != nil {
		i.bytes -= in.size
		delete(i.heard, name)
	}
	delete(i.over, name)
}

// read reads introductions, in their order: of two for one name the last counts. A name that no cluster
// has is ignored.
func read(all []*v1alpha1.Introduction) (read []*introduced) {
	seen := names{}
	for _, said := range slices.Backward(all) {
		in := &introduced{said: said}
		if seen[in.name()] || catalog.CheckCluster(in.name()) != nil {
			continue
		}
		seen[in.name()] = true
		in.digest, in.size = digestOf(said.GetObject()), proto.Size(said)
		if in.object, in.err = api.ParseIntroduction(said.GetObject()); in.err != nil {
			in.err = brief(in.err)
			in.said = &v1alpha1.Introduction{Object: &v1alpha1.Cluster{Metadata: &v1alpha1.Metadata{Name: in.name()}}}
			in.size = proto.Size(in.said)
		}
		read = append(read, in)
	}
	slices.Reverse(read) // whose bounds go by the order
	return read
}

func (in *introduced) name() string { return in.said.GetObject().GetMetadata().GetName() }

// put takes one introduction, within the bounds.
func (i *introducer) put(in *introduced) {
	name := in.name()
	was := i.heard[name]
	if was == nil && len(i.heard) >= MaxClusters || i.bytes+in.size-was.bytes() > maxBytes {
		i.drop(name)
		if len(i.over) < MaxClusters {
			i.over[name] = true
		}
		return
	}
	i.drop(name)
	i.heard[name] = in
	i.bytes += in.size
}

func (in *introduced) bytes() int {
	if in == nil {
		return 0
	}
	return in.size
}

func (h *Heard) changed() {
	n, _ := h.version.Load()
	h.version.Store(n + 1)
}

// derive adds to a change the objects of the touched names, as they are now.
func (h *Heard) derive(touched names, c *configstore.Change) {
	stands := names{}
	c.Objects, c.Deleted = slices.Clip(c.Objects), slices.Clone(c.Deleted) // they are the follower's
	for name := range touched {
		was, is := h.derived[name], h.decide(name)
		if is != nil {
			stands[name] = true
			if reflect.DeepEqual(was, is) {
				continue
			}
			h.derived[name] = is
			c.Objects = append(c.Objects, storedOf(is))
			continue
		}
		delete(h.derived, name)
		if was != nil && h.written[name] == nil {
			c.Deleted = append(c.Deleted, was.Key())
		}
	}
	c.Deleted = slices.DeleteFunc(c.Deleted, func(key catalog.Key) bool {
		return key.Kind == catalog.KindCluster && stands[key.Name]
	})
}
