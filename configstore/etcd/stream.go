package etcd

import (
	"context"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/isthmus-mesh/isthmus/configstore"
)

// A server answers the question how far it has told everything only when it has; it looks
// every 100 ms. Servers before 3.4.25 and 3.5.8 answer at once, which is a little too soon.
const (
	progressEvery = 100 * time.Millisecond
	mostAsked     = 20
)

// receiver reads one stream of a server, with a watch for each span, into a Pending.
//
// What one transaction wrote comes in one response of each watch, or in fragments of it.
// Where there are two watches, or a reader is to be told at first all that it has missed,
// what has come is held back until the server says that it has told everything so far.
type receiver struct {
	store   *Store
	spans   []span
	pending *configstore.Pending
	stream  pb.Watch_WatchClient

	mu      sync.Mutex // guards all below, and sending
	over    bool
	begin   int64 // the revision after which events are wanted
	last    place // what has been noted so far
	seen    map[int64]int64
	partial map[int64]bool // watches of which fragments are still to come
	created int
	until   int64 // the revision to hold back until; 0 while nothing is
	asked   int   // how often, for this holding back
	timer   *time.Timer
}

func newReceiver(s *Store, pending *configstore.Pending, begin place, head int64) *receiver {
	r := &receiver{store: s, spans: s.spans(), pending: pending, begin: begin.revision, last: begin, seen: map[int64]int64{}, partial: map[int64]bool{}}
	for i := range r.spans {
		r.seen[watchID(i)] = begin.revision
	}
	if head > begin.revision {
		r.until = head
	}
	return r
}

func watchID(i int) int64 { return int64(i) + 1 }

// everyWatch is the id of what the server says of all watches of a stream.
const everyWatch = -1

// run reads a stream until it ends. The error is never nil.
func (r *receiver) run(ctx context.Context) error {
	defer r.finish()
	watches := make([]*pb.WatchCreateRequest, len(r.spans))
	for i, s := range r.spans {
		watches[i] = &pb.WatchCreateRequest{
			Key: []byte(s.begin), RangeEnd: []byte(s.end), WatchId: watchID(i),
			StartRevision: r.begin + 1, ProgressNotify: true, Fragment: true,
		}
	}
	read := &pb.ResponseHeader{ClusterId: r.last.cluster, RaftTerm: r.last.term}
	return r.store.client.Follow(ctx, read, watches, r.take)
}

// finish lets no timer do anything more.
func (r *receiver) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	if r.timer != nil {
		r.timer.Stop()
	}
}

func (r *receiver) take(stream pb.Watch_WatchClient, response *pb.WatchResponse) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stream = stream
	switch {
	case response.Created:
		r.opened()
	case len(response.Events) == 0 && !response.Fragment && !r.partial[response.WatchId]:
		r.progress(response)
	default:
		r.events(response)
	}
	return nil
}

// opened is told of each watch when it stands. When all do, the reader is told what it has
// missed, even if that is nothing.
func (r *receiver) opened() {
	r.created++
	switch {
	case r.created < len(r.spans):
	case r.until > 0:
		r.ask()
	default:
		r.commit()
	}
}

// events notes what a response holds.
func (r *receiver) events(response *pb.WatchResponse) {
	for _, event := range response.Events {
		if event.Kv.ModRevision <= r.begin {
			continue // not asked for; some servers send it all the same
		}
		r.seen[response.WatchId] = max(r.seen[response.WatchId], event.Kv.ModRevision)
		r.note(event)
	}
	r.last.cluster, r.last.term = response.Header.ClusterId, response.Header.RaftTerm
	r.partial[response.WatchId] = response.Fragment
	switch {
	case len(r.spans) > 1:
		r.until = max(r.until, r.seen[response.WatchId])
		r.ask()
	case r.until == 0 && !response.Fragment:
		r.commit()
	}
}

func (r *receiver) note(event *mvccpb.Event) {
	if event.Type == mvccpb.DELETE {
		r.last.witness = deleted(event.Kv)
		r.pending.NoteDeleted(r.store.unprefixed(event.Kv.Key))
		return
	}
	r.last.witness = testify(event.Kv)
	r.pending.Note(r.store.pair(event.Kv))
}

// progress is told that everything up to a revision has been sent.
func (r *receiver) progress(response *pb.WatchResponse) {
	told := response.Header.Revision
	answer := response.WatchId == everyWatch
	for id, seen := range r.seen {
		// Where one watch is enough, the answer of a server that gives it too soon is
		// not relied on for the version.
		if id == response.WatchId || answer && len(r.spans) > 1 {
			r.seen[id] = max(seen, told)
		}
	}
	switch {
	case r.until == 0 && !answer:
		r.commit()
	case r.until > 0 && told >= r.until && answer:
		r.settle()
	}
}

// settle lets what was held back be taken.
func (r *receiver) settle() {
	if r.incomplete() {
		return // its last fragment is on the way, and is asked about again
	}
	r.until, r.asked = 0, 0
	r.timer.Stop()
	r.commit()
}

// incomplete tells whether fragments of what one transaction wrote are still to come.
func (r *receiver) incomplete() bool {
	for _, partial := range r.partial {
		if partial {
			return true
		}
	}
	return false
}

// commit lets all that was noted be taken, with the revision up to which every watch has
// told everything.
func (r *receiver) commit() {
	r.last.revision = math.MaxInt64
	for _, seen := range r.seen {
		r.last.revision = min(r.last.revision, seen)
	}
	r.pending.Commit(r.last.version())
}

// ask asks how far the server has told everything, and again a little later.
func (r *receiver) ask() {
	if r.created < len(r.spans) {
		return
	}
	// An error shows when the stream is read.
	_ = r.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(progressEvery, r.askAgain)
}

func (r *receiver) askAgain() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.until == 0 {
		return
	}
	if r.asked++; r.asked <= mostAsked || r.incomplete() {
		r.ask() // what has come of a transaction is not taken without the rest, however slowly that comes
		return
	}
	// It does not say. What it has sent stands; the version is that of before, so that
	// whoever goes on from it is told everything again.
	r.until, r.asked = 0, 0
	r.commit()
}
