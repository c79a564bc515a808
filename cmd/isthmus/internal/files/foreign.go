package files

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Clusters are the names of the clusters that a service knows. A TrafficSplit has names that only
// make sense with them.
type Clusters func() ([]string, error)

// document takes a document of another standard.
func (r *reader) document(file string, root *strict.Node) bool {
	d := smimcs.Decode(file, root)
	if d == nil {
		return false
	}
	for _, other := range r.documents {
		if d.ID == other.ID {
			d = smimcs.Doubled(other, d)
		}
	}
	r.documents = append(r.documents, d)
	return true
}

// derive adds what the documents stand for to the objects. What they mean besides is noted.
func (r *reader) derive(clusters Clusters) {
	if len(r.documents) == 0 {
		return
	}
	set := smimcs.NewSet()
	if err := r.addClusters(set, clusters); err != nil {
		r.errors = append(r.errors, err)
		return
	}
	touched := map[catalog.Key]bool{}
	for _, d := range r.documents {
		r.set.Notes = append(r.set.Notes, d.Notes...)
		for _, key := range set.Put(d) {
			touched[key] = true
		}
	}
	for _, p := range set.Problems() {
		r.errors = append(r.errors, p.Err)
	}
	for _, key := range smimcs.Sorted(touched) {
		object := set.Derive(key)
		switch _, written := r.first[key]; {
		case object == nil:
		case written:
			r.set.Notes = append(r.set.Notes, smimcs.Outranked(object).Error())
		default:
			r.set.Notes = append(r.set.Notes, fmt.Sprintf("%s is derived %s", key, object.Origin()))
			r.add(api.Manifest{Object: object})
		}
	}
}

// addClusters tells the set of the clusters in the files and of those that a service knows. With
// no service to ask, any name may be a cluster's.
func (r *reader) addClusters(set *smimcs.Set, clusters Clusters) error {
	for _, object := range r.set.Objects {
		if c, ok := object.(*catalog.Cluster); ok {
			set.Cluster(c.Name, true)
		}
	}
	if clusters == nil {
		set.AnyCluster = true
		return nil
	}
	names, err := clusters()
	for _, name := range names {
		set.Cluster(name, true)
	}
	return err
}
