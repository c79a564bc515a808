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

// maxZones bounds the different zones in a Zones.
const maxZones = 255

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

// Zones has the zone of each of several instances, in their order. It is immutable, and nil if no
// zone is known.
type Zones struct {
	names []string // sorted and unique
	of    []byte   // for each instance the index of its zone in names, from 1; 0 if unknown
}

// NewZones makes Zones from the zone of each instance, "" if unknown. After the first 255 names,
// zones count as unknown.
func NewZones(of []string) *Zones {
	z := &Zones{of: make([]byte, len(of))}
	z.names = slices.Compact(slices.Sorted(slices.Values(of)))
	if len(z.names) > 0 && z.names[0] == "" {
		z.names = z.names[1:]
	}
	if len(z.names) == 0 {
		return nil
	}
	z.names = slices.Clone(z.names[:min(len(z.names), maxZones)])
	for i, name := range of {
		if at, found := slices.BinarySearch(z.names, name); found {
			z.of[i] = byte(at + 1)
		}
	}
	return z
}

// ParseZones reads the result of Parts for the given number of instances. It keeps the slices.
func ParseZones(names []string, of []byte, instances int) (*Zones, error) {
	switch {
	case len(names) == 0 && len(of) == 0:
		return nil, nil
	case len(names) == 0 || len(names) > maxZones:
		return nil, fmt.Errorf("%d zones; from 1 to %d are taken", len(names), maxZones)
	case len(of) != instances:
		return nil, fmt.Errorf("zones of %d instances, where there are %d", len(of), instances)
	}
	for i, name := range names {
		if err := CheckZone(name); err != nil {
			return nil, err
		}
		if name == "" || i > 0 && names[i-1] >= name {
			return nil, errors.New("zones that have no name, or are not in order")
		}
	}
	if int(slices.Max(of)) > len(names) || slices.Max(of) == 0 {
		return nil, fmt.Errorf("instances in none, or beyond the last, of %d zones", len(names))
	}
	return &Zones{names, of}, nil
}

// Parts returns the zones' names, sorted and unique, and for each instance the index of its zone
// there, from 1, or 0 if unknown. Don't change them.
func (z *Zones) Parts() (names []string, of []byte) {
	if z == nil {
		return nil, nil
	}
	return z.names, z.of
}

// At is the zone of an instance; "" if unknown.
func (z *Zones) At(instance int) string {
	if z == nil || z.of[instance] == 0 {
		return ""
	}
	return z.names[z.of[instance]-1]
}

// First returns the zones of the first instances.
func (z *Zones) First(instances int) *Zones {
	if z == nil || instances >= len(z.of) {
		return z
	}
	places := make([]int, instances)
	for i := range places {
		places[i] = i
	}
	return z.Of(places)
}

// Of returns the zones of some of the instances, by index.
func (z *Zones) Of(places []int) *Zones {
	if z == nil {
		return nil
	}
	of := make([]string, len(places))
	for i, place := range places {
		of[i] = z.At(place)
	}
	return NewZones(of)
}

// Equal tells whether both have the same zones.
func (z *Zones) Equal(o *Zones) bool {
	return z == o || z != nil && o != nil && bytes.Equal(z.of, o.of) && slices.Equal(z.names, o.names)
}

// String lists each zone with its number of instances.
func (z *Zones) String() string {
	if z == nil {
		return ""
	}
	var counts [maxZones + 1]int
	for _, place := range z.of {
		counts[place]++
	}
	var parts []string
	for i, name := range z.names {
		if n := counts[i+1]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s: %d", name, n))
		}
	}
	if counts[0] > 0 {
		parts = append(parts, fmt.Sprintf("unknown: %d", counts[0]))
	}
	return strings.Join(parts, ", ")
}
