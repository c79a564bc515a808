package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Error is one mistake in one object.
type Error struct {
	File   string // the file, or the key in a key-value store; empty when there is neither
	Line   int    // from 1; 0 when it is not known
	Column int    // in characters, from 1; 0 when it is not known

	// Key names the object that the mistake is in. It is zero when the object could
	// not be told: then nothing is known of what the rest of the file should have held.
	Key catalog.Key

	Path string // the field, such as "spec.endpoints[2].app"; empty for the whole object
	What string // what is wrong
	Fix  string // what to do about it
}

// Error is "file:line:column: path: what; what to do".
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Line > 0 && e.Column > 0 {
		fmt.Fprintf(&b, ":%d", e.Column)
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.What)
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return strings.TrimPrefix(b.String(), ":")
}

// Errors are the mistakes of a file or an object, in the order of their lines.
type Errors []*Error

// Error has a line for each mistake.
func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, err := range e {
		lines[i] = err.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap gives each mistake to errors.As.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// Err is nil when there is no mistake.
func (e Errors) Err() error {
	if len(e) == 0 {
		return nil
	}
	return e
}

// maxErrors is after how many mistakes the reading of an object stops, and after how many
// objects with mistakes that of a file, so that a hostile one floods no terminal, no log and
// no processor.
const maxErrors = 100

// report collects the mistakes of one object.
type report struct {
	file   string
	key    catalog.Key
	errors Errors
}

func (r *report) add(at position, path, what, fix string) {
	if r.full() {
		return
	}
	r.errors = append(r.errors, &Error{
		File: r.file, Line: at.line, Column: at.column, Key: r.key, Path: path, What: what, Fix: fix,
	})
}

// full tells whether nothing more is to be read of the object.
func (r *report) full() bool { return len(r.errors) >= maxErrors }

// close returns the mistakes, each with the object's key as far as it is known now.
func (r *report) close() Errors {
	for _, e := range r.errors {
		e.Key = r.key
	}
	slices.SortStableFunc(r.errors, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if r.full() {
		last := r.errors[len(r.errors)-1]
		last.What += fmt.Sprintf(" (reading this object stops here, after %d mistakes)", maxErrors)
	}
	return r.errors
}
