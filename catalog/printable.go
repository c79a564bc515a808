package catalog

import (
	"strings"
	"unicode"
	"unicode/utf8"
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

// Clip shortens a text to so many bytes, where possible between two words. An ellipsis stands for
// the rest.
func Clip(s string, most int) string {
	const ellipsis = "…"
	if len(s) <= most {
		return s
	}
	end := max(0, most-len(ellipsis))
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	if space := strings.LastIndexByte(s[:end+1], ' '); space > end/3 {
		end = space
	}
	return strings.ToValidUTF8(s[:end], "?") + ellipsis
}
