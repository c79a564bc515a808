package consulapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/hashicorp/go-bexpr"
	lru "github.com/hashicorp/golang-lru/v2"
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
)

// filters keeps filters ready for use: to read a long one takes a tenth of a second. Only one
// is read at a time, so the service has cores left for all else.
type filters struct {
	reading chan struct{} // held while a filter is read
	known   *lru.Cache[string, *prepared]
}

func newFilters() *filters {
	known, _ := lru.New[string, *prepared](mostPrepared) // an error would be a size below 1
	return &filters{reading: make(chan struct{}, 1), known: known}
}

// prepared is a filter for one type of data.
type prepared struct {
	filter *bexpr.Filter
	err    error
	// services are the only ones whose checks a filter lets through, if narrow is set.
	services []string
	narrow   bool
}

// prepare makes the request's filter ready for a list of T; nil without a filter.
func prepare[T any](q *request) (*prepared, error) { return q.prepare([]T(nil)) }

// tryFilter refuses a wrong filter of a list of T before the request waits for anything.
func tryFilter[T any](q *request) error {
	_, err := prepare[T](q)
	return err
}

// filtered is what of data, a slice or a map, the request's filter lets through.
func filtered[T any](q *request, data T) (T, error) {
	var none T
	p, err := q.prepare(none)
	if p == nil || err != nil {
		return data, err
	}
	result, err := p.filter.Execute(data)
	if err != nil {
		return none, badRequest("the filter fails: %v", err)
	}
	return result.(T), nil
}

// prepare makes the request's filter ready for data like this: a nil slice or map.
func (q *request) prepare(of any) (*prepared, error) {
	if q.filter == "" {
		return nil, nil
	}
	if len(q.filter) > longestFilter {
		return nil, badRequest("the filter is %d bytes long; at most %d fit: ask for fewer things at once", len(q.filter), longestFilter)
	}
	f, key := q.s.filters, fmt.Sprintf("%T\x00%s", of, q.filter)
	p, known := f.known.Get(key)
	if !known {
		select {
		case f.reading <- struct{}{}:
		case <-q.http.Context().Done():
			return nil, q.http.Context().Err()
		}
		defer func() { <-f.reading }()
		if p, known = f.known.Get(key); !known { // no other request has read it meanwhile
			p = parseFilter(q.filter, of)
			f.known.Add(key, p)
		}
	}
	return p, p.err
}

// parseFilter reads a filter. It counts steps first: bexpr has no bound where it makes a
// filter, and makes none of what it has read.
func parseFilter(filter string, of any) *prepared {
	tree, err := bexpr.Parse("", []byte(filter), bexpr.MaxExpressions(uint64(mostSteps+stepsPerByte*len(filter))))
	if err != nil {
		if strings.Contains(err.Error(), "max number of expres") {
			return &prepared{err: badRequest("the filter takes too long to read: write it with fewer parentheses within each other")}
		}
		return &prepared{err: &apiError{http.StatusInternalServerError, "Failed to create boolean expression evaluator: " + err.Error()}}
	}
	expression := tree.(bexpr.Expression)
	if n := comparisons(expression); n > mostComparisons {
		return &prepared{err: badRequest("the filter has %d comparisons; at most %d fit: ask for fewer things at once", n, mostComparisons)}
	}
	p := &prepared{}
	p.services, p.narrow = servicesOf(expression)
	if p.filter, err = bexpr.CreateFilter(filter, &bexpr.EvaluatorConfig{Registry: bexpr.NewSyncRegistry()}, of); err != nil {
		p.err = &apiError{http.StatusInternalServerError, err.Error()}
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

// servicesOf are the names of the only services that a filter of checks lets through; ok is
// false if it may let any through. So a client that watches a few services waits for them alone.
func servicesOf(e bexpr.Expression) (names []string, ok bool) {
	switch e := e.(type) {
	case *bexpr.MatchExpression:
		if e.Operator == bexpr.MatchEqual && len(e.Selector) == 1 && e.Selector[0] == "ServiceName" &&
			e.Value != nil && e.Value.Raw != "" { // a node's checks have an empty one
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
