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
	put(t, b, s, cluster("east", "a"), cluster("west", "a"))
	f := follow(t, s)
	f.awaitSet(cluster("east", "a"), cluster("west", "a"))
	restore := b.Rewind(t)
	put(t, b, s, cluster("east", "b"), cluster("north", "a"))
	remove(t, s, cluster("west", ""))
	f.awaitSet(cluster("east", "b"), cluster("north", "a"))
	restore()
	f.awaitSet(cluster("east", "a"), cluster("west", "a"))
	writeSoon(t, s, cluster("south", "a"))
	f.awaitSet(cluster("east", "a"), cluster("south", "a"), cluster("west", "a"))
	f.neverLost(eastKey)
}

// rewoundWhileAway gives the server new writes for as many versions as it lost, so that
// a version alone does not show what happened.
func rewoundWhileAway(t *testing.T, b Backend) {
	orSkip(t, b.Rewind != nil, "this store's server has no backups")
	s := open(t, b)
	put(t, b, s, cluster("east", "a"))
	restore := b.Rewind(t)
	put(t, b, s, cluster("east", "b"))
	put(t, b, s, cluster("north", "a"))
	r := watch(t, s, "")
	r.awaitSet(cluster("east", "b"), cluster("north", "a"))
	comeBack(t, s, r, func() {
		restore()
		for _, network := range []string{"a", "b", "c", "d"} {
			writeSoon(t, s, cluster("south", network))
		}
	})
	r.awaitSet(cluster("east", "a"), cluster("south", "d"))
}

func compacted(t *testing.T, b Backend) {
	orSkip(t, b.Compact != nil, "this store's server keeps no history that it could forget")
	s := open(t, b)
	put(t, b, s, cluster("east", "a"), cluster("west", "a"))
	away, f := watch(t, s, ""), follow(t, s)
	away.awaitSet(cluster("east", "a"), cluster("west", "a"))
	f.awaitSet(cluster("east", "a"), cluster("west", "a"))
	comeBack(t, s, away, func() {
		put(t, b, s, cluster("east", "b"), cluster("north", "a"))
		remove(t, s, cluster("west", ""))
		b.Compact(t)
	})
	away.awaitSet(cluster("east", "b"), cluster("north", "a"))
	put(t, b, s, cluster("south", "a"))
	for _, r := range []*reader{away, &f.reader} {
		r.awaitSet(cluster("east", "b"), cluster("north", "a"), cluster("south", "a"))
	}
	f.neverLost(eastKey)
	f.neverTwice()
}
