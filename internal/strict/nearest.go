package strict

import (
	"fmt"
	"strings"
)

// Nearest returns the candidate that s was probably meant to be, or "". Upper and
// lower case, hyphens and underscores do not count.
func Nearest(s string, candidates []string) string {
	best, bestDistance := "", len(s)/3+1
	if len(s) > longest {
		return "" // it is a misspelling of nothing
	}
	folded := fold(s)
	for _, c := range candidates {
		if d := distance(folded, fold(c)); d <= bestDistance && d < len(c) {
			if d == bestDistance && best != "" {
				continue
			}
			best, bestDistance = c, d
		}
	}
	return best
}

// Hint asks whether the nearest of the candidates was meant; if none is near, it says otherwise.
func Hint(s string, candidates []string, otherwise string) string {
	if near := Nearest(s, candidates); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return otherwise
}

// longest is how long a name may be to be compared.
const longest = 64

var separators = strings.NewReplacer("_", "", "-", "")

func fold(s string) string { return separators.Replace(strings.ToLower(s)) }

// distance is the number of characters to insert, remove or replace, or of
// neighbours to swap, to make a into b.
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
