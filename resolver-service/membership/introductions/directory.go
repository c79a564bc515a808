// Package introductions lets clusters introduce others to each other, so that not each of them
// needs a Cluster object for each other.
//
// [Directory] is the introducer's side: the Cluster objects that each peer is told of. [Heard] is
// the other side: it derives Cluster objects from introductions, under the rules of this cluster,
// and never tells others of them. The peering edge carries both.
package introductions

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// Bounds of one cluster's introductions.
const (
	MaxClusters = 10_000
	maxBytes    = 64 << 20
)

// Directory knows the introductions for each peer. It is safe for concurrent use.
type Directory struct {
	own      string
	clusters *live.Value[[]*catalog.Cluster]

	mu     sync.Mutex
	latest *Listing
}

// NewDirectory makes the directory of a cluster's Cluster objects, which are sorted by name.
func NewDirectory(own string, clusters *live.Value[[]*catalog.Cluster]) *Directory {
	return &Directory{own: own, clusters: clusters, latest: &Listing{}}
}

// Listing is all Cluster objects of one moment. It is immutable.
type Listing struct {
	of      []*catalog.Cluster
	entries []entry // of the same clusters
}

type entry struct {
	cluster *catalog.Cluster
	told    *v1alpha1.Introduction // nil: nobody is told of it
}

// Follow returns the listing of now, and a channel that is closed once there is another one. It is
// nil before the Cluster objects are known.
func (d *Directory) Follow() (now *Listing, changed <-chan struct{}) {
	clusters, known, changed := d.clusters.Follow()
	if !known {
		return nil, changed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !sameSlice(clusters, d.latest.of) {
		d.latest = d.list(clusters)
	}
	return d.latest, changed
}

func sameSlice(a, b []*catalog.Cluster) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// list makes the next listing. It encodes only changed clusters.
func (d *Directory) list(clusters []*catalog.Cluster) *Listing {
	l, before := &Listing{of: clusters, entries: make([]entry, len(clusters))}, d.latest
	for i, c := range clusters {
		if was := before.find(c.Name); was.cluster == c {
			l.entries[i] = was
			continue
		}
		l.entries[i] = entry{cluster: c}
		if c.IntroduceTo != nil && c.IntroducedBy == "" && c.Name != d.own { // what was introduced is never passed on
			l.entries[i].told = introduction(c)
		}
	}
	return l
}

func introduction(c *catalog.Cluster) *v1alpha1.Introduction {
	m := &v1alpha1.Introduction{Object: api.Introduction(c)}
	if proto.Size(m) > api.MaxIntroduction {
		return nil // its receivers would refuse it
	}
	m.Digest = digestOf(m.Object)
	return m
}

// digestOf tells what is introduced from anything else that somebody could make up. Its receiver counts
// it anew, or whoever had the introducer's key once would be believed by it for ever.
func digestOf(c *v1alpha1.Cluster) uint64 {
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		return 0
	}
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// Tells tells whether a peer is told anything by it. One without a Cluster object is not, not even
// that what it knows was taken back.
func (l *Listing) Tells(peer string) bool { return l.find(peer).cluster != nil }

// Len is how many clusters it has.
func (l *Listing) Len() int { return len(l.entries) }

func (l *Listing) find(cluster string) entry {
	if l == nil {
		return entry{}
	}
	at, found := slices.BinarySearchFunc(l.entries, cluster, func(e entry, name string) int { return strings.Compare(e.cluster.Name, name) })
	if !found {
		return entry{}
	}
	return l.entries[at]
}

// to is the introduction for a peer; nil for none. Labels that others gave it do not count.
func (e entry) to(peer *catalog.Cluster) *v1alpha1.Introduction {
	if e.told == nil || peer == nil || e.cluster.Name == peer.Name {
		return nil
	}
	labels := peer.Labels
	if peer.IntroducedBy != "" {
		labels = nil
	}
	if !e.cluster.IntroduceTo.Selects(peer.Name, labels) {
		return nil
	}
	return e.told
}

// First is the news for a peer that knows some clusters, by their digests.
func (l *Listing) First(peer string, known map[string]uint64) (put []*v1alpha1.Introduction, removed []string) {
	to := l.find(peer).cluster
	for _, e := range l.entries {
		told := e.to(to)
		if told == nil {
			continue
		}
		digest, there := known[e.cluster.Name]
		if !there || digest != told.Digest {
			put = append(put, told)
		}
		delete(known, e.cluster.Name)
	}
	for name := range known {
		removed = append(removed, name)
	}
	return put, removed
}

// Since is the news for a peer that was told all of an earlier listing.
func (l *Listing) Since(before *Listing, peer string) (put []*v1alpha1.Introduction, removed []string) {
	was, is := before.find(peer).cluster, l.find(peer).cluster
	old := before.entries
	for _, e := range l.entries {
		for len(old) > 0 && old[0].cluster.Name < e.cluster.Name {
			if old[0].to(was) != nil {
				removed = append(removed, old[0].cluster.Name)
			}
			old = old[1:]
		}
		var former *v1alpha1.Introduction
		if len(old) > 0 && old[0].cluster.Name == e.cluster.Name {
			if former = old[0].to(was); old[0] == e && was == is {
				old = old[1:]
				continue
			}
			old = old[1:]
		}
		switch told := e.to(is); {
		case told == nil && former != nil:
			removed = append(removed, e.cluster.Name)
		case told != nil && (former == nil || former.Digest != told.Digest):
			put = append(put, told)
		}
	}
	for _, e := range old {
		if e.to(was) != nil {
			removed = append(removed, e.cluster.Name)
		}
	}
	return put, removed
}
