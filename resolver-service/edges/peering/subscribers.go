package peering

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/resolver-service/membership/introductions"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Bounds for subscribers.
const (
	maxStreams     = 32                        // of one cluster, for all its replicas
	maxRunning     = 64                        // including ended ones that still run
	maxSubscribers = introductions.MaxClusters // that are kept without a stream
)

// subscribers are the clusters that follow the exports to them. It is safe for concurrent use.
type subscribers struct {
	mu        sync.Mutex
	byCluster map[string]*subscriber
}

type subscriber struct {
	streams   []*subscription                    // oldest first, without ended ones
	running   int                                // including ended ones
	digests   map[topology.PeerKey]*sharedDigest // of the views that streams follow
	quota     streamQuota
	restsMs   uint32    // as the last stream of exports said when it ended
	idleSince time.Time // when the last stream ended; zero while there is one
}

// subscription is one stream.
type subscription struct{ end context.CancelCauseFunc }

var errTooMany = errors.New("the cluster opened too many streams; its oldest ones end")

// add records a stream of a cluster. If the cluster has too many, the oldest stream ends, because
// its other end is the most likely to be gone. It fails if too many streams don't end, or if
// streams follow each other too fast.
func (a *subscribers) add(cluster string, end context.CancelCauseFunc) (by *subscriber, leave func(), err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byCluster == nil {
		a.byCluster = map[string]*subscriber{}
	}
	by = a.byCluster[cluster]
	if by == nil {
		a.makeRoom()
		by = &subscriber{quota: newStreamQuota(), digests: map[topology.PeerKey]*sharedDigest{}}
		a.byCluster[cluster] = by
	}
	switch {
	case by.running >= maxRunning:
		return by, nil, status.Errorf(codes.ResourceExhausted, "cluster %s has %d streams that do not end, since it does not read them; at most %d are allowed", cluster, maxRunning, maxRunning)
	case !by.quota.allow():
		// The peer's link treats Unavailable as a broken connection and retries, less and less
		// often.
		return by, nil, status.Errorf(codes.Unavailable,
			"cluster %s opened too many streams: it may open %d at once and then %d a second, fewer if many apps are exported to it; "+
				"it may retry in a moment. If this goes on, find out what ends its connections", cluster, streamBurst, streamRate)
	}
	by.running++
	if len(by.streams) >= maxStreams {
		by.streams[0].end(errTooMany)
		by.streams = by.streams[1:]
	}
	s := &subscription{end}
	by.streams, by.idleSince = append(by.streams, s), time.Time{}
	return by, func() { a.remove(by, s) }, nil
}

func (a *subscribers) remove(by *subscriber, s *subscription) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by.running--
	for i, other := range by.streams {
		if other == s {
			by.streams = append(by.streams[:i:i], by.streams[i+1:]...)
			break
		}
	}
	if len(by.streams) == 0 && by.idleSince.IsZero() {
		by.idleSince = time.Now()
	}
}

// sharedDigest is the digest of a view, for all streams that follow it.
type sharedDigest struct {
	viewDigest
	users int
}

// digest returns that of a view, until releaseDigest. A new one goes on from another view's, if the
// stream has followed one.
func (a *subscribers) digest(by *subscriber, key topology.PeerKey, before *viewDigest) *viewDigest {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := by.digests[key]
	if d == nil {
		d = &sharedDigest{}
		d.onFullScan = func(exports int) { by.quota.charge(exports) }
		if before != nil {
			d.view, d.sum = before.current()
		}
		by.digests[key] = d
	}
	d.users++
	return &d.viewDigest
}

func (a *subscribers) releaseDigest(by *subscriber, key topology.PeerKey) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := by.digests[key]; d.users > 1 {
		d.users--
	} else {
		delete(by.digests, key)
	}
}

// makeRoom forgets the cluster that has been idle longest, if there are too many; mu is held.
func (a *subscribers) makeRoom() {
	if len(a.byCluster) < maxSubscribers {
		return
	}
	var oldest string
	for cluster, by := range a.byCluster {
		if by.running == 0 && (oldest == "" || by.idleSince.Before(a.byCluster[oldest].idleSince)) {
			oldest = cluster
		}
	}
	delete(a.byCluster, oldest)
}

// any tells whether any cluster has a stream.
func (a *subscribers) any() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, by := range a.byCluster {
		if len(by.streams) > 0 {
			return true
		}
	}
	return false
}

// streamsOf returns how many streams a cluster has, since when it has none, and how long it rests. The
// time is zero if it never had one.
func (a *subscribers) streamsOf(cluster string) (streams int, since time.Time, restsMs uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by := a.byCluster[cluster]
	if by == nil {
		return 0, time.Time{}, 0
	}
	if len(by.streams) == 0 {
		restsMs = by.restsMs
	}
	return len(by.streams), by.idleSince, restsMs
}

// rests notes what a cluster's stream said of its rest when it ended.
func (a *subscribers) rests(by *subscriber, ms uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by.restsMs = ms
}
