package strict

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Error is one mistake in a text that a person wrote: its place, the problem and the advice.
type Error struct {
	File   string // the file, or the key in a key-value store; empty when there is neither
	Line   int    // from 1; 0 when it is not known
	Column int    // in characters, from 1; 0 when it is not known

	// Key names the object that the mistake is in. It is zero outside of objects, and when
	// the reader could not tell the object: then nothing is known of the rest of the file.
	Key catalog.Key

	Path string // the field, such as "spec.endpoints[2].app"; empty for the whole text
	What string // what is wrong
	Fix  string // what to do about it; empty where What says all

	cause error // the error that What is the text of, if it is one
}

// Unwrap is the error that What is the text of, or nil.
func (e *Error) Unwrap() error { return e.cause }

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

// Errors are mistakes, mostly in the order of their lines. A part that checks its own
// settings collects its mistakes in Errors, with paths below its own block.
type Errors []*Error

// Add adds a mistake without a place; [Document.Merge] gives it one by its path.
func (e *Errors) Add(path, what, fix string) {
	*e = append(*e, &Error{Path: path, What: what, Fix: fix})
}

// Merge adds the mistakes in an error, which concern the value at path.
func (e *Errors) Merge(path string, err error) { *e = append(*e, Below(path, err)...) }

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

// Below is the mistakes that an error holds, each with its path below another one. An error
// of any other type is one mistake at the path itself.
func Below(path string, err error) Errors {
	var several Errors
	var one *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &several):
	case errors.As(err, &one):
		several = Errors{one}
	default:
		several = Errors{{What: err.Error(), cause: err}}
	}
	below := make(Errors, len(several))
	for i, e := range several {
		moved := *e
		moved.Path = join(path, e.Path)
		below[i] = &moved
	}
	return below
}

func join(path, name string) string {
	if path == "" || name == "" || name[0] == '[' {
		return path + name
	}
	return path + "." + name
}

// MaxErrors is after how many mistakes a [Report] is full, so that a hostile text floods no
// terminal, no log and no processor.
const MaxErrors = 100

// Report collects the mistakes of one text, up to MaxErrors.
type Report struct {
	File   string
	Key    catalog.Key // of the object that is being read, as soon as it is known
	Errors Errors
}

// Add adds a mistake, unless the report is full.
func (r *Report) Add(at Position, path, what, fix string) {
	if r.Full() {
		return
	}
	if len(r.Errors) == MaxErrors-1 {
		what += fmt.Sprintf(" (reading stops here, after %d mistakes)", MaxErrors)
	}
	r.Errors = append(r.Errors, &Error{
		File: r.File, Line: int(at.Line), Column: int(at.Column), Key: r.Key, Path: path, What: what, Fix: fix,
	})
}

// Full tells whether the reader should stop.
func (r *Report) Full() bool { return len(r.Errors) >= MaxErrors }

// Close returns the mistakes by line and column, each with the key as far as it is known now.
func (r *Report) Close() Errors {
	for _, e := range r.Errors {
		e.Key = r.Key
	}
	slices.SortStableFunc(r.Errors, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.Errors
}
