package consulapi

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// How long a blocking query waits, which is Consul's.
const (
	defaultWait = 5 * time.Minute
	longestWait = 10 * time.Minute
)

// request is one request with the parameters that most endpoints take.
type request struct {
	s      *Server
	http   *http.Request
	header http.Header // of the answer
	query  url.Values
	path   string // after the endpoint's own
	caller *caller
	body   []byte              // as far as it was read
	large  *http.MaxBytesError // nil unless there is more of it than may be

	index       uint64
	hash        string
	wait        time.Duration
	dc          string // a cluster other than this one, or empty
	filter      string
	prepared    map[string]*prepared // the filter, by the type of what it filters
	consistency string
	cached      bool
	failing     bool // an error has the headers of an answer too, as in Consul
}

// badRequest is an answer 400.
func badRequest(format string, args ...any) error {
	return &apiError{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

// who finds out who asks. No filter is read for who sees nothing: to read one takes time,
// and there is nothing to filter.
func (q *request) who() (err error) {
	if q.caller, err = q.s.holder(q.http); err != nil {
		q.s.metrics.denied.WithLabelValues(unknownToken).Inc()
		return err
	}
	if q.caller.app.ID == "" {
		q.filter = ""
	}
	return nil
}

// enterprise refuses what only Consul Enterprise has, as Consul does.
func (q *request) enterprise() error {
	for _, e := range []struct{ key, name string }{{"ns", "Namespaces"}, {"partition", "Partitions"}} {
		if q.query.Get(e.key) != "" {
			return badRequest("Invalid query parameter: %q - %s are a Consul Enterprise feature", e.key, e.name)
		}
	}
	if q.http.Header.Get("X-Consul-Namespace") != "" {
		return badRequest(`Invalid header: "X-Consul-Namespace" - Namespaces are a Consul Enterprise feature`)
	}
	return nil
}

// options reads the parameters of a query of the catalog.
func (q *request) options() error {
	if err := q.enterprise(); err != nil {
		return err
	}
	q.filter = q.query.Get("filter")
	if err := q.consistent(); err != nil {
		return err
	}
	if err := q.blocking(); err != nil {
		return err
	}
	return nil
}

// consistent reads how new the answer is to be. It is always the newest.
func (q *request) consistent() error {
	stale := q.query.Has("stale")
	consistent := q.query.Has("consistent")
	q.cached = q.query.Has("cached")
	if text := q.query.Get("max_stale"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return badRequest("Invalid max_stale value %q", text)
		}
		stale = stale || d > 0
	}
	switch {
	case stale && consistent:
		return badRequest("Cannot specify ?stale with ?consistent, conflicting semantics.")
	case q.cached && consistent:
		return badRequest("Cannot specify ?cached with ?consistent, conflicting semantics.")
	case stale:
		q.consistency = "stale"
	case consistent:
		q.consistency = "consistent"
	default:
		q.consistency = "leader"
	}
	return q.cacheControl()
}

func (q *request) cacheControl() error {
	for directive := range strings.SplitSeq(strings.ToLower(q.http.Header.Get("Cache-Control")), ",") {
		directive = strings.TrimSpace(directive)
		for _, name := range []string{"max-age=", "stale-if-error="} {
			if value, ok := strings.CutPrefix(directive, name); ok {
				if _, err := strconv.Atoi(value); err != nil {
					return badRequest("Invalid Cache-Control header.")
				}
			}
		}
	}
	return nil
}

// blocking reads what a blocking query waits for, and how long.
func (q *request) blocking() error {
	if text := q.query.Get("wait"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			return badRequest("Invalid wait time")
		}
		q.wait = d
	}
	if text := q.query.Get("index"); text != "" {
		index, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return badRequest("Invalid index")
		}
		q.index = index
	}
	q.hash = q.query.Get("hash")
	return nil
}

// blocks tells whether the query waits for news.
func (q *request) blocks() bool { return q.index != 0 || q.hash != "" }

// limit is how long the query blocks: what was asked for and up to a sixteenth more, so
// that those who began together do not come back together.
func (q *request) limit() time.Duration {
	wait := q.wait
	if wait <= 0 {
		wait = defaultWait
	}
	wait = min(wait, longestWait)
	return wait + time.Duration(rand.Int64N(int64(wait/16)+1))
}

// datacenter reads which cluster is asked about. Who asks knows it only if the view does.
func (q *request) datacenter() error {
	dc := q.query.Get("datacenter")
	if dc == "" {
		dc = q.query.Get("dc")
	}
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

var errNoLeader = &apiError{http.StatusInternalServerError, "No cluster leader"}

// until returns the answer once it is newer than what the client knows, or its wait is
// over. While nothing changes it does nothing. changed is asked for what else wakes it,
// before the answer is made, so that nothing is missed.
//
// An index that is higher than the answer's is none that was given out here, as after a
// change to another replica: then what the client knows is not known, and it has the
// answer at once.
func (q *request) until(answer func() *record, changed func() <-chan struct{}) (*record, error) {
	var timer <-chan time.Time
	for {
		_, _, news := q.caller.news.Follow()
		more := changed()
		r := answer()
		if r == nil {
			return nil, errNoLeader
		}
		if q.index == 0 || r.index != q.index {
			return r, nil
		}
		if timer == nil {
			t := time.NewTimer(q.limit())
			defer t.Stop()
			timer = t.C
		}
		if over, err := q.blocked(news, more, timer); over || err != nil {
			return r, err
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

// failed writes the headers that Consul's errors of most queries have.
func (q *request) failed() {
	if !q.failing {
		return
	}
	q.header.Set("X-Consul-Index", "1")
	q.header.Set("X-Consul-Knownleader", "false")
	q.header.Set("X-Consul-Lastcontact", "0")
	q.header.Set("X-Consul-Query-Backend", "blocking-query")
}

// meta writes the headers of an answer to a query.
func (q *request) meta(index uint64) {
	h := q.header
	h.Set("X-Consul-Index", strconv.FormatUint(index, 10))
	h.Set("X-Consul-Knownleader", "true")
	h.Set("X-Consul-Lastcontact", "0")
	h.Set("X-Consul-Effective-Consistency", q.consistency)
	h.Set("X-Consul-Query-Backend", "blocking-query")
	if q.cached {
		h.Set("X-Cache", "MISS")
	}
}
