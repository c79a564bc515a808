package dial

import "sync/atomic"

// renewal is when a follower makes all its connections anew. The old take calls until one of
// the new is ready, and then end what is under way on them.
type renewal struct {
	turn    atomic.Uint32
	givenUp atomic.Bool // lookups have answered this shard's name no more
}

// counts takes in that lookups answer so many names of the follower's app in its cluster.
//
// A shard whose name was given up goes to an instance that had it no more, once there are
// enough instances again; but its connection leads to the one that had it before. Without
// new connections, an instance that crashed once would have no calls of callers that ran
// all along, and another twice its share. With none at all nothing is known of shards.
func (f *follower) counts(n int) {
	switch {
	case n == 0 || f.shard < 0:
	case f.shard >= n:
		f.givenUp.Store(true)
	case f.givenUp.CompareAndSwap(true, false):
		f.renew()
	}
}

// renew has the follower make its connections anew. It never blocks.
func (f *follower) renew() {
	f.turn.Add(1)
	select {
	case f.renewed <- struct{}{}:
	default:
	}
}
