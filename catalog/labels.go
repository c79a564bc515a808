package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxZone bounds the characters of a zone's name.
const MaxZone = 63

// maxLabels bounds the different labels in a Labels.
const maxLabels = 255

// CheckZone checks that every table and log can show the name of a zone.
func CheckZone(s string) error {
	if n := utf8.RuneCountInString(s); n > MaxZone {
		return fmt.Errorf("the zone is %d characters long; at most %d are taken", n, MaxZone)
	}
	if !utf8.ValidString(s) {
		return errors.New("the zone is not text in UTF-8")
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("the zone has %q in it, which can't be printed", c)
		}
	}
	return nil
}

// Labels has a label, such as the zone or the version, of each of several instances, in their order.
// It is immutable, and nil if no label is known.
type Labels struct {
	names []string // sorted and unique
	of    []byte   // for each instance the index of its label in names, from 1; 0 if unknown
}

// NewLabels makes Labels from the label of each instance, "" if unknown. After the first 255 names,
// labels count as unknown.
func NewLabels(of []string) *Labels {
	l := &Labels{of: make([]byte, len(of))}
	l.names = slices.Compact(slices.Sorted(slices.Values(of)))
	if len(l.names) > 0 && l.names[0] == "" {
		l.names = l.names[1:]
	}
	if len(l.names) == 0 {
		return nil
	}
	l.names = slices.Clone(l.names[:min(len(l.names), maxLabels)])
	for i, name := range of {
		if at, found := slices.BinarySearch(l.names, name); found {
			l.of[i] = byte(at + 1)
		}
	}
	return l
}

// ParseLabels reads the result of Parts for the given number of instances. It keeps the slices.
func ParseLabels(names []string, of []byte, instances int) (*Labels, error) {
	switch {
	case len(names) == 0 && len(of) == 0:
		return nil, nil
	case len(names) == 0 || len(names) > maxLabels:
		return nil, fmt.Errorf("%d labels; from 1 to %d are taken", len(names), maxLabels)
	case len(of) != instances || instances == 0:
		return nil, fmt.Errorf("labels of %d instances, where there are %d", len(of), instances)
	}
	for i, name := range names {
		if err := CheckZone(name); err != nil {
			return nil, err
		}
		if name == "" || i > 0 && names[i-1] >= name {
			return nil, errors.New("labels that have no name, or are not in order")
		}
	}
	if int(slices.Max(of)) > len(names) || slices.Max(of) == 0 {
		return nil, fmt.Errorf("instances with none, or beyond the last, of %d labels", len(names))
	}
	return &Labels{names, of}, nil
}

// Parts returns the labels, sorted and unique, and for each instance the index of its label
// there, from 1, or 0 if unknown. Don't change them.
func (l *Labels) Parts() (names []string, of []byte) {
	if l == nil {
		return nil, nil
	}
	return l.names, l.of
}

// Names are the labels, sorted and unique.
func (l *Labels) Names() []string {
	names, _ := l.Parts()
	return names
}

// At is the label of an instance; "" if unknown.
func (l *Labels) At(instance int) string {
	if l == nil || l.of[instance] == 0 {
		return ""
	}
	return l.names[l.of[instance]-1]
}

// First returns the labels of the first instances.
func (l *Labels) First(instances int) *Labels {
	if l == nil || instances >= len(l.of) {
		return l
	}
	places := make([]int, instances)
	for i := range places {
		places[i] = i
	}
	return l.Of(places)
}

// Of returns the labels of some of the instances, by index.
func (l *Labels) Of(places []int) *Labels {
	if l == nil {
		return nil
	}
	of := make([]string, len(places))
	for i, place := range places {
		of[i] = l.At(place)
	}
	return NewLabels(of)
}

// Equal tells whether both have the same labels.
func (l *Labels) Equal(o *Labels) bool {
	return l == o || l != nil && o != nil && bytes.Equal(l.of, o.of) && slices.Equal(l.names, o.names)
}

// String lists each label with its number of instances.
func (l *Labels) String() string {
	if l == nil {
		return ""
	}
	var counts [maxLabels + 1]int
	for _, place := range l.of {
		counts[place]++
	}
	var parts []string
	for i, name := range l.names {
		if n := counts[i+1]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", name, n))
		}
	}
	if counts[0] > 0 {
		parts = append(parts, fmt.Sprintf("unknown: %d", counts[0]))
	}
	return strings.Join(parts, ", ")
}
