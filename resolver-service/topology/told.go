package topology

import (
	"slices"
	"time"
)

// Other clusters are not told at once of each of many instances. A caller that names one which is
// gone goes on to another, so that a list that is a little old costs it little, while a rollout of
// 1,000 instances would send the list 1,000 times to each peer. The first change after a quiet time is
// told at once, and so is what a caller would miss; the rest goes out together.
const (
	fewInstances = 64              // up to so many, each change is told at once
	tellEvery    = 5 * time.Second // and of more, once in this time
	toldShare    = 10              // unless it is more than one in so many
)

// toldInstances is what peers were told last of an app's instances.
type toldInstances struct {
	*exportableInstances
	draining uint32
	at       time.Duration // as Change.Now
}

// misses tells whether a caller that knows t would miss what is so now: most of all that an app, a zone
// or a version has come or gone.
func (t *toldInstances) misses(now *exportableInstances) bool {
	most := max(len(t.ready), len(now.ready))
	return min(len(t.ready), len(now.ready)) <= fewInstances || unlike(t.ready, now.ready)*toldShare > most ||
		!slices.Equal(t.zones.Names(), now.zones.Names()) || !slices.Equal(t.versions.Names(), now.versions.Names())
}

// unlike is how many texts only one of two sorted lists has.
func unlike(a, b []string) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] == b[0]:
			a, b = a[1:], b[1:]
		case a[0] < b[0]:
			a, n = a[1:], n+1
		default:
			b, n = b[1:], n+1
		}
	}
	return n + len(a) + len(b)
}

// telling is what peers know a little less of than is so, for now.
type telling struct {
	now, next time.Duration                  // as Change.Now; when the first of them is due
	late      map[*node]*exportableInstances // what is so, and misses nothing of what was told
}

// told is what peers without the addresses of an app's instances are to be told of it now.
func (x *exportTables) told(n *node) *toldInstances {
	is, old, t := x.exportableOf(n), n.told, &x.telling
	switch {
	case old != nil && (x.saved != nil || old.exportableInstances == is && old.draining == n.draining || t.late[n] == is):
		return old // also while Try looks ahead, when none of this changes
	case x.saved == nil && old != nil && t.now < old.at+tellEvery && !old.misses(is):
		t.late[n] = is
		t.next = min(t.next, old.at+tellEvery)
		return old
	}
	now := &toldInstances{is, n.draining, t.now}
	if x.saved == nil {
		delete(t.late, n)
		n.told = now
	}
	return now
}

// advance has peers told what is due.
func (x *exportTables) advance(now time.Duration) {
	t := &x.telling
	t.now = max(t.now, now)
	if t.now < t.next {
		return
	}
	t.next = never
	for n := range t.late {
		if due := n.told.at + tellEvery; t.now < due {
			t.next = min(t.next, due)
			continue
		}
		delete(t.late, n)
		x.dirty.exported(n)
	}
}
