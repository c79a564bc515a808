package topology

import (
	"cmp"
	"slices"
	"strings"
)

// claimant is an instance that a source names at an address.
type claimant struct {
	*node
	source, id string
	draining   bool
	standing   bool
	hearsay    bool
	number     uint64 // the newest has the highest; 0 until the address is contested
}

func (n *node) claimant(i *instance) claimant {
	return claimant{node: n, source: i.source, id: i.id, draining: i.draining, standing: i.standing, hearsay: i.hearsay}
}

// compare is below zero where a claim is weaker than another. Hearsay is the weakest of all.
// Who has come up while we watched is stronger than who was there before, and the newest
// such is the strongest, ready or not.
//
// Of those that were there before, nothing tells which is the newest, since sources are heard
// in any order. So what counts is what all replicas see: who is ready, and what each source
// knows. Within one source, they come with the oldest first.
func (c claimant) compare(o claimant) int {
	if order := cmp.Or(unless(c.hearsay, o.hearsay), unless(c.standing, o.standing)); order != 0 {
		return order
	}
	if c.standing {
		if order := cmp.Or(unless(c.draining, o.draining), compareSources(c.source, o.source)); order != 0 {
			return order
		}
		if c.source == static {
			return cmp.Or(o.app.Compare(c.app), strings.Compare(o.id, c.id))
		}
	}
	return cmp.Compare(c.number, o.number)
}

// unless orders what is so before what is not.
func unless(c, o bool) int {
	switch {
	case c == o:
		return 0
	case c:
		return -1
	default:
		return 1
	}
}

// static is the source of AppInstance objects: one is there because somebody wrote it, not
// because it has come up, and each replica may see them in another order.
const static = "static"

// bySource are the sources from the one whose word for what was there before is the weakest
// to the strongest: what is written down, then catalogs, then those where a sidecar says so
// itself, and has to go on saying it.
var bySource = [...]string{static, "consul", "kubernetes", "consulapi", "etcd", "stream"}

// compareSources compares what two sources' words for instances that were there before are
// worth. One that is not known is a catalog.
func compareSources(c, o string) int {
	if c == o {
		return 0
	}
	rank := func(source string) int {
		if at := slices.Index(bySource[:], source); at >= 0 {
			return 2 * at
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(c), rank(o)), strings.Compare(c, o))
}

// among is the claim's place among others.
func (c claimant) among(claims []claimant) int {
	return slices.IndexFunc(claims, func(o claimant) bool { return o.node == c.node && o.source == c.source && o.id == c.id })
}
