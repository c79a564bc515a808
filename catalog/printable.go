package catalog

import (
	"strings"
	"unicode"
)

// Printable makes a text from outside safe for logs and terminals: a question mark replaces each
// character that can't be printed.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}
