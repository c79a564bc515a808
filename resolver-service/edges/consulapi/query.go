package consulapi

import (
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

// How long a blocking query waits, which is Consul's.
const (
	defaultWait = 5 * time.Minute
	longestWait = 10 * time.Minute
)

// holdTime is how long a query that does not block waits for the service to settle, as
// one waits for a leader in Consul.
const holdTime = 7 * time.Second

var errNoLeader = &apiError{http.StatusInternalServerError, "No cluster leader"}

// request is one request, with the parameters that endpoints share.
type request struct {
	s      *Server
	http   *http.Request
	header http.Header // of the answer
	body   []byte
	name   string // the end of the path
	query  url.Values
	caller *caller

	index  uint64
	wait   time.Duration
	dc     string // another cluster; empty for this one
	filter string
}

// unsupported are parameters that would change an answer, and that Isthmus does not know.
var unsupported = []string{"ns", "partition", "peer", "sg", "node-meta", "hash"}

// read finds the caller, and reads the parameters.
func (q *request) read() (err error) {
	if q.query, err = url.ParseQuery(q.http.URL.RawQuery); err != nil {
		return badRequest("Invalid query: %v", err)
	}
	for _, name := range unsupported {
		if q.query.Get(name) != "" {
			return badRequest("Invalid query parameter: Isthmus does not know %q; leave it out", name)
		}
	}
	if text := q.query.Get("wait"); text != "" {
		if q.wait, err = time.ParseDuration(text); err != nil {
			return badRequest("Invalid wait time")
		}
	}
	if text := q.query.Get("index"); text != "" {
		if q.index, err = strconv.ParseUint(text, 10, 64); err != nil {
			return badRequest("Invalid index")
		}
	}
	if q.caller, err = q.s.holder(q.http); err != nil {
		q.s.metrics.denied.WithLabelValues(unknownToken).Inc()
		return err
	}
	if !q.caller.nobody() { // nobody has nothing to filter, and reading one takes time
		q.filter = q.query.Get("filter")
	}
	return nil
}

// sender is the address that the request comes from.
func (q *request) sender() netip.Addr {
	at, _ := netip.ParseAddrPort(q.http.RemoteAddr) // net/http writes it
	return at.Addr().Unmap()
}

// limit is how long the query blocks: what was asked for and up to a sixteenth more, so
// that those that began together do not come back together.
func (q *request) limit() time.Duration {
	wait := q.wait
	if wait <= 0 {
		wait = defaultWait
	}
	wait = min(wait, longestWait)
	return wait + time.Duration(rand.Int64N(int64(wait/16)+1))
}

// ready waits until the service has settled, and finds out about which cluster the query is.
func (q *request) ready() error {
	if err := q.settled(); err != nil {
		return err
	}
	return q.datacenter()
}

// datacenter reads which cluster is asked about. A caller knows those that its view leads to.
func (q *request) datacenter() error {
	dc := q.query.Get("dc")
	if dc == "" || dc == q.s.cfg.Cluster {
		return nil
	}
	if view, ok := q.caller.look(); ok {
		if _, known := view.Gateways.Addresses[dc]; known {
			q.dc = dc
			return nil
		}
	}
	return &apiError{http.StatusInternalServerError, "No path to datacenter"}
}

// settled waits until the caller's view is there, with all that it had before the service
// started. What is missing earlier may not have been heard of yet, and an answer without it
// would say that it was withdrawn. After a while the query is answered as by a Consul without a
// leader; registrations and updates of checks are taken in meanwhile.
//
// A blocking query is held as long as it would block. Dapr's component keeps what it knows
// while it waits; after an error it forgets all of it, and asks again seconds later.
func (q *request) settled() error {
	if q.caller.sub == nil {
		return nil // nobody sees nothing, and misses nothing
	}
	hold := holdTime
	if q.index != 0 {
		hold = q.limit()
	}
	var timer *time.Timer
	for {
		news := follow(&q.caller.news)
		_, seen := q.caller.look()
		pending := q.s.cfg.Settled
		if q.s.settled() {
			if seen {
				return nil
			}
			pending = nil
		}
		if timer == nil {
			timer = time.NewTimer(hold)
			defer timer.Stop()
		}
		switch over, err := q.blocked(news, pending, timer.C); {
		case err != nil:
			return err
		case over:
			return errNoLeader
		}
	}
}

// until returns the answer once it is newer than what the client knows, or its wait is
// over. changed is asked for what else wakes the query, before the answer is made, so that it
// misses nothing.
//
// A client may have an index that was not given out here, as after a change to another
// replica. Then what it knows is not known, and it has the answer at once.
func (q *request) until(answer func() *record, changed func() <-chan struct{}) (*record, error) {
	var timer *time.Timer
	for {
		news, more := follow(&q.caller.news), changed()
		r := answer()
		if r == nil {
			return nil, errNoLeader
		}
		over := (q.index == 0 || r.index != q.index) && (r.entry == nil || !r.entry.Awaited())
		if !over {
			if timer == nil {
				timer = time.NewTimer(q.limit())
				defer timer.Stop()
			}
			var err error
			if over, err = q.blocked(news, more, timer.C); err != nil {
				return nil, err
			}
		}
		if over {
			q.meta(r.index)
			return r, nil
		}
	}
}

// blocked waits until something may have changed, or the query is over.
func (q *request) blocked(news, more <-chan struct{}, timer <-chan time.Time) (over bool, err error) {
	q.s.metrics.blocked.Add(1)
	defer q.s.metrics.blocked.Add(-1)
	select {
	case <-news:
	case <-more:
	case <-timer:
		return true, nil
	case <-q.s.stopping:
		return true, nil
	case <-q.http.Context().Done():
		return true, q.http.Context().Err()
	}
	return false, nil
}

// meta writes the headers of an answer to a query.
func (q *request) meta(index uint64) {
	q.header.Set("X-Consul-Index", strconv.FormatUint(index, 10))
	q.header.Set("X-Consul-Knownleader", "true")
	q.header.Set("X-Consul-Lastcontact", "0")
}

func follow[T any](v *live.Value[T]) <-chan struct{} {
	_, _, changed := v.Follow()
	return changed
}
