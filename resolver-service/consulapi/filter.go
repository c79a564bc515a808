package consulapi

import (
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/hashicorp/go-bexpr"
)

// Bounds of a filter. Consul's is 32 comparisons; the stock component of Dapr, when it
// caches, sends one for each app that it has called.
const (
	mostComparisons = 2048
	longestFilter   = 64 << 10
	// mostSteps bounds the parser, for which each parenthesis within others takes twelve
	// times as long, beside stepsPerByte for what is long and simple.
	mostSteps    = 100_000
	stepsPerByte = 20
	mostPrepared = 128
)

// filters are those that were used lately, ready to be used again: to parse one of a
// thousand comparisons takes a third of a second.
type filters struct {
	fields bexpr.Registry

	mu  sync.Mutex
	all map[string]*prepared
}

// prepared is a filter for one type of data.
type prepared struct {
	filter *bexpr.Filter
	err    error
	// services are those that a filter of checks lets through at most, if narrow is set.
	services []string
	narrow   bool
}

// prepare makes a filter ready for data like this; of is a nil slice or map.
func (f *filters) prepare(filter string, of any) *prepared {
	key := reflect.TypeOf(of).String() + "\x00" + filter
	f.mu.Lock()
	p := f.all[key]
	f.mu.Unlock()
	if p != nil {
		return p
	}
	p = f.parse(filter, of)
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.all) >= mostPrepared {
		clear(f.all)
	}
	f.all[key] = p
	return p
}

func (f *filters) parse(filter string, of any) *prepared {
	if len(filter) > longestFilter {
		return &prepared{err: badRequest("the filter is %d bytes long; at most %d fit", len(filter), longestFilter)}
	}
	tree, err := bexpr.Parse("", []byte(filter), bexpr.MaxExpressions(uint64(mostSteps+stepsPerByte*len(filter))))
	if err != nil && strings.Contains(err.Error(), "max number of expres") {
		return &prepared{err: badRequest("the filter takes too long to read: write it with fewer parentheses within each other")}
	}
	p := &prepared{}
	if expression, ok := tree.(bexpr.Expression); ok && err == nil {
		p.services, p.narrow = servicesOf(expression)
	}
	p.filter, err = bexpr.CreateFilter(filter, &bexpr.EvaluatorConfig{MaxMatches: mostComparisons, Registry: f.fields}, of)
	if err != nil {
		p.err = &apiError{http.StatusInternalServerError, err.Error()}
	}
	return p
}

// filtered is what of data a filter lets through: a slice or a map, of which it gets a
// new one.
func filtered[T any](s *Server, filter string, data T) (T, error) {
	if filter == "" {
		return data, nil
	}
	var none T
	return execute(s.filters.prepare(filter, none), data)
}

// filteredLate is filtered for what Consul looks at a selector only with something to
// select from.
func filteredLate[T any](s *Server, filter string, data T) (T, error) {
	if filter == "" {
		return data, nil
	}
	return execute(s.filters.parse(filter, nil), data) // it remembers what it was used on
}

func execute[T any](p *prepared, data T) (T, error) {
	var none T
	if p.err != nil {
		return none, p.err
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
func (s *Server) onlyServices(filter string) (names []string, ok bool) {
	if filter == "" {
		return nil, false
	}
	p := s.filters.prepare(filter, []*healthCheck(nil))
	return append([]string(nil), p.services...), p.narrow
}

func servicesOf(e bexpr.Expression) (names []string, ok bool) {
	switch e := e.(type) {
	case *bexpr.MatchExpression:
		if e.Operator == bexpr.MatchEqual && len(e.Selector) == 1 && e.Selector[0] == "ServiceName" && e.Value != nil {
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
