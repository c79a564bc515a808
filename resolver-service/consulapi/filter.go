package consulapi

import (
	"net/http"
	"strings"

	"github.com/hashicorp/go-bexpr"
)

// Bounds of a filter. Consul's is 32 comparisons; the stock component of Dapr, when it
// caches, sends one for each app that it has called.
const (
	mostComparisons = 2048
	longestFilter   = 128 << 10
	deepestFilter   = 16 // parentheses and nots within each other: the parser tries each several times
)

// filtered is what of data a filter lets through: a slice or a map, of which it gets a
// new one.
func filtered[T any](s *Server, filter string, data T) (T, error) {
	if filter == "" {
		return data, nil
	}
	var none T
	if err := checkFilter(filter); err != nil {
		return none, err
	}
	f, err := bexpr.CreateFilter(filter, &bexpr.EvaluatorConfig{MaxMatches: mostComparisons, Registry: s.fields}, data)
	if err != nil {
		return none, &apiError{http.StatusInternalServerError, err.Error()}
	}
	result, err := f.Execute(data)
	if err != nil {
		return none, &apiError{http.StatusInternalServerError, err.Error()}
	}
	return result.(T), nil
}

// filteredLate is filtered for what Consul looks at a selector only with something to
// select from.
func filteredLate[T any](filter string, data T) (T, error) {
	if filter == "" {
		return data, nil
	}
	var none T
	if err := checkFilter(filter); err != nil {
		return none, err
	}
	f, err := bexpr.CreateFilter(filter, &bexpr.EvaluatorConfig{MaxMatches: mostComparisons}, nil)
	if err != nil {
		return none, &apiError{http.StatusInternalServerError, err.Error()}
	}
	result, err := f.Execute(data)
	if err != nil {
		return none, &apiError{http.StatusInternalServerError, err.Error()}
	}
	return result.(T), nil
}

// checkFilter holds a filter to what the parser can be given.
func checkFilter(filter string) error {
	if len(filter) > longestFilter {
		return badRequest("the filter is %d bytes long; at most %d fit", len(filter), longestFilter)
	}
	if depth := strings.Count(filter, "(") - strings.Count(filter, ")"); depth > deepestFilter {
		return badRequest("the filter opens %d parentheses that it does not close", depth)
	}
	depth, deepest := 0, 0
	for i := range len(filter) {
		switch filter[i] {
		case '(':
			depth++
			deepest = max(deepest, depth)
		case ')':
			depth--
		}
	}
	if nots := strings.Count(strings.ToLower(filter), "not"); deepest > deepestFilter || nots > mostComparisons {
		return badRequest("the filter has %d parentheses within each other; at most %d fit", deepest, deepestFilter)
	}
	return nil
}

// onlyServices are the names of the services that a filter of checks lets through at
// most; ok is false where it may let through any. So what a client waits for that
// watches a few services does not depend on all the others.
func onlyServices(filter string) (names []string, ok bool) {
	if filter == "" || checkFilter(filter) != nil {
		return nil, false
	}
	tree, err := bexpr.Parse("", []byte(filter))
	if err != nil {
		return nil, false
	}
	expression, ok := tree.(bexpr.Expression)
	if !ok {
		return nil, false
	}
	return servicesOf(expression)
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
