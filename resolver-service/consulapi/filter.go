package consulapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-bexpr"
)

// Bounds of a filter. Consul's is 32 comparisons; the stock component of Dapr, when it
// caches, sends one for each app that it has called.
const (
	mostComparisons = 512
	longestFilter   = 16 << 10
	// mostSteps bounds the parser, for which each parenthesis within others takes twelve
	// times as long, beside stepsPerByte for what is long and simple.
	mostSteps    = 100_000
	stepsPerByte = 20
	mostPrepared = 128
	// readWait is how long a filter waits for its turn to be read.
	readWait = 10 * time.Second
)

// filters are those that were used lately, ready to be used again: to read a long one takes
// a tenth of a second, in which nobody can stop it.
type filters struct {
	fields bexpr.Registry
	turn   chan struct{} // held by who reads a filter: one at a time, and the service has cores left for all else
	read   atomic.Int64  // how many were

	mu    sync.Mutex
	all   map[string]*prepared
	clock uint64
}

func newFilters() *filters {
	return &filters{fields: bexpr.NewSyncRegistry(), turn: make(chan struct{}, 1), all: map[string]*prepared{}}
}

// prepared is a filter for one type of data.
type prepared struct {
	filter *bexpr.Filter
	err    error
	// typeErr is err without what Consul writes before it where it looks at the type later.
	typeErr error
	// services are those that a filter of checks lets through at most, if narrow is set.
	services []string
	narrow   bool

	used uint64 // by filters.clock; guarded by filters.mu
}

// known is a filter that was used lately.
func (f *filters) known(key string) *prepared {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.all[key]
	if p != nil {
		f.clock++
		p.used = f.clock
	}
	return p
}

// remember takes the place of the filter that was not used for longest.
func (f *filters) remember(key string, p *prepared) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) >= mostPrepared {
		oldest := ""
		for k, other := range f.all {
			if oldest == "" || other.used < f.all[oldest].used {
				oldest = k
			}
		}
		delete(f.all, oldest)
	}
	f.clock++
	p.used = f.clock
	f.all[key] = p
}

// prepare makes the request's filter ready for data like this; of is a nil slice or map, or
// nil for a filter that is only to be read.
func (q *request) prepare(of any) (*prepared, error) {
	if len(q.filter) > longestFilter {
		return nil, badRequest("the filter is %d bytes long; at most %d fit: ask for fewer things at once", len(q.filter), longestFilter)
	}
	kind := fmt.Sprintf("%T", of)
	if p := q.prepared[kind]; p != nil {
		return p, nil
	}
	f, key := q.s.filters, kind+"\x00"+q.filter
	p := f.known(key)
	if p == nil {
		leave, err := q.enter()
		if err != nil {
			return nil, err
		}
		defer leave()
		if p = f.known(key); p == nil { // nobody has read the same meanwhile
			p = f.parse(q.filter, of)
			f.remember(key, p)
		}
	}
	if q.prepared == nil {
		q.prepared = map[string]*prepared{}
	}
	q.prepared[kind] = p
	return p, nil
}

// enter waits until a filter of the request may be read. Each caller waits with one, so that
// many of one app hold up that app.
func (q *request) enter() (leave func(), err error) {
	over := time.NewTimer(readWait)
	defer over.Stop()
	var held []chan struct{}
	leave = func() {
		for _, turn := range held {
			<-turn
		}
	}
	for _, turn := range []chan struct{}{q.caller.turn, q.s.filters.turn} {
		select {
		case turn <- struct{}{}:
			held = append(held, turn)
			continue
		case <-over.C:
			err = &apiError{http.StatusServiceUnavailable, fmt.Sprintf("filters are read one at a time, and those before this one took longer than %s; ask again, with a filter that stays the same where you can: one that was used lately is not read again", readWait)}
		case <-q.http.Context().Done():
			err = q.http.Context().Err()
		}
		leave()
		return nil, err
	}
	return leave, nil
}

// failedToCreate is what bexpr writes before its errors.
const failedToCreate = "Failed to create boolean expression evaluator: "

// parse reads a filter, within bounds at first: bexpr has none where it makes a filter, and
// makes none of what it has read.
func (f *filters) parse(filter string, of any) *prepared {
	f.read.Add(1)
	tree, err := bexpr.Parse("", []byte(filter), bexpr.MaxExpressions(uint64(mostSteps+stepsPerByte*len(filter))))
	if err != nil {
		if strings.Contains(err.Error(), "max number of expres") {
			err = badRequest("the filter takes too long to read: write it with fewer parentheses within each other")
		} else {
			err = &apiError{http.StatusInternalServerError, failedToCreate + err.Error()}
		}
		return &prepared{err: err, typeErr: err}
	}
	expression := tree.(bexpr.Expression)
	if n := comparisons(expression); n > mostComparisons {
		err = badRequest("the filter has %d comparisons; at most %d fit: ask for fewer things at once", n, mostComparisons)
		return &prepared{err: err, typeErr: err}
	}
	p := &prepared{}
	p.services, p.narrow = servicesOf(expression)
	if p.filter, err = bexpr.CreateFilter(filter, &bexpr.EvaluatorConfig{Registry: f.fields}, of); err != nil {
		p.err = &apiError{http.StatusInternalServerError, err.Error()}
		p.typeErr = &apiError{http.StatusInternalServerError, strings.TrimPrefix(err.Error(), failedToCreate)}
	}
	return p
}

// comparisons is how many a filter makes.
func comparisons(e bexpr.Expression) int {
	switch e := e.(type) {
	case *bexpr.UnaryExpression:
		return comparisons(e.Operand)
	case *bexpr.BinaryExpression:
		return comparisons(e.Left) + comparisons(e.Right)
	}
	return 1
}

// filtered is what of data the request's filter lets through: a slice or a map, of which it
// gets a new one.
func filtered[T any](q *request, data T) (T, error) {
	var none T
	if q.filter == "" {
		return data, nil
	}
	p, err := q.prepare(none)
	if err != nil {
		return none, err
	}
	return execute(p, p.err, data)
}

// filteredChecks is filtered for an agent's checks, where Consul looks at a selector only
// with something to select from.
func (q *request) filteredChecks(checks map[string]*healthCheck) (map[string]*healthCheck, error) {
	if q.filter == "" {
		return checks, nil
	}
	var of any
	if len(checks) > 0 {
		of = map[string]*healthCheck(nil)
	}
	p, err := q.prepare(of)
	if err != nil {
		return nil, err
	}
	return execute(p, p.typeErr, checks)
}

func execute[T any](p *prepared, err error, data T) (T, error) {
	var none T
	if err != nil {
		return none, err
	}
	result, err := p.filter.Execute(data)
	if err != nil {
		return none, &apiError{http.StatusInternalServerError, err.Error()}
	}
	return result.(T), nil
}

// onlyServices are the names of the services that a filter of checks lets through at
// most; ok is false where it may let through any. So what a client waits for that
// watches a few services does not depend on all the others.
func (q *request) onlyServices() (names []string, ok bool, err error) {
	if q.filter == "" {
		return nil, false, nil
	}
	p, err := q.prepare([]*healthCheck(nil))
	if err != nil {
		return nil, false, err
	}
	return append([]string(nil), p.services...), p.narrow, nil
}

func servicesOf(e bexpr.Expression) (names []string, ok bool) {
	switch e := e.(type) {
	case *bexpr.MatchExpression:
		if e.Operator == bexpr.MatchEqual && len(e.Selector) == 1 && e.Selector[0] == "ServiceName" &&
			e.Value != nil && e.Value.Raw != "" { // which is that of a node's checks
			return []string{e.Value.Raw}, true
		}
	case *bexpr.BinaryExpression:
		left, leftOK := servicesOf(e.Left)
		right, rightOK := servicesOf(e.Right)
		switch {
		case e.Operator == bexpr.BinaryOpOr && leftOK && rightOK:
			return append(left, right...), true
		case e.Operator == bexpr.BinaryOpAnd && leftOK:
			return left, true
		case e.Operator == bexpr.BinaryOpAnd && rightOK:
			return right, true
		}
	}
	return nil, false
}
