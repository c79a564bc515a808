package storetest

import "testing"

func backups() []specification {
	return []specification{
		{"a server put back to a backup: its readers come to have what it has", rewound},
		{"a server put back to a backup and written again: so does a reader that was away", rewoundWhileAway},
		{"a server that has forgotten its history: nobody is wedged, nothing is lost", compacted},
	}
}

func rewound(t *testing.T, b Backend) {
	orSkip(t, b.Rewind != nil, "this store's server has no backups")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	f := Follow(t, s)
	f.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	restore := b.Rewind(t)
	put(t, b, s, Cluster("east", "b"), Cluster("north", "a"))
	remove(t, s, Cluster("west", ""))
	f.awaitSet(Cluster("east", "b"), Cluster("north", "a"))
	restore()
	f.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	writeSoon(t, s, Cluster("south", "a"))
	f.awaitSet(Cluster("east", "a"), Cluster("south", "a"), Cluster("west", "a"))
	f.neverLost(eastKey)
}

// rewoundWhileAway gives the server new writes for as many versions as it lost, so that
// a version alone does not show what happened.
func rewoundWhileAway(t *testing.T, b Backend) {
	orSkip(t, b.Rewind != nil, "this store's server has no backups")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"))
	restore := b.Rewind(t)
	put(t, b, s, Cluster("east", "b"))
	put(t, b, s, Cluster("north", "a"))
	r := Watch(t, s, "")
	r.awaitSet(Cluster("east", "b"), Cluster("north", "a"))
	comeBack(t, s, r, func() {
		restore()
		for _, network := range []string{"a", "b", "c", "d"} {
			writeSoon(t, s, Cluster("south", network))
		}
	})
	r.awaitSet(Cluster("east", "a"), Cluster("south", "d"))
}

func compacted(t *testing.T, b Backend) {
	orSkip(t, b.Compact != nil, "this store's server keeps no history that it could forget")
	s := open(t, b)
	put(t, b, s, Cluster("east", "a"), Cluster("west", "a"))
	away, f := Watch(t, s, ""), Follow(t, s)
	away.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	f.awaitSet(Cluster("east", "a"), Cluster("west", "a"))
	comeBack(t, s, away, func() {
		put(t, b, s, Cluster("east", "b"), Cluster("north", "a"))
		remove(t, s, Cluster("west", ""))
		b.Compact(t)
	})
	away.awaitSet(Cluster("east", "b"), Cluster("north", "a"))
	put(t, b, s, Cluster("south", "a"))
	for _, r := range []*Reader{away, &f.Reader} {
		r.awaitSet(Cluster("east", "b"), Cluster("north", "a"), Cluster("south", "a"))
	}
	f.neverLost(eastKey)
	f.neverTwice()
}
