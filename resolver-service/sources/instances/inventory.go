package instances

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

const (
	maxID   = 512 // bytes of an instance's ID
	maxZone = 63  // bytes of a zone; what is beyond is left out
	maxName = 200 // bytes of a name in a refusal
)

// inventory is what one source has, and what of it the topology has not been told. It is
// guarded by its owner.
type inventory struct {
	max       int
	rules     *destination.Rules
	instances map[topology.InstanceKey]catalog.Instance
	refused   map[topology.InstanceKey]error // by us, and not by the source
	beyond    bool                           // some were refused for being too many

	// touched has each instance that may differ from what the topology was told, as it was
	// told; nil for one that was not told.
	touched map[topology.InstanceKey]*catalog.Instance
}

func newInventory(limit int) *inventory {
	return &inventory{
		max: limit, instances: map[topology.InstanceKey]catalog.Instance{},
		refused: map[topology.InstanceKey]error{}, touched: map[topology.InstanceKey]*catalog.Instance{},
	}
}

// apply takes a change in.
func (s *inventory) apply(c Change) {
	if c.Full {
		s.reset(c.Put)
	} else {
		for _, key := range c.Delete {
			s.remove(key)
		}
	}
	for i := range c.Put {
		s.put(&c.Put[i])
	}
}

// reset takes away what a full set does not have.
func (s *inventory) reset(put []catalog.Instance) {
	there := make(map[topology.InstanceKey]bool, len(put))
	for i := range put {
		there[topology.KeyOf(&put[i])] = true
	}
	for key := range s.instances {
		if !there[key] {
			s.remove(key)
		}
	}
	clear(s.refused)
	s.beyond = false
}

func (s *inventory) put(i *catalog.Instance) {
	key := topology.KeyOf(i)
	now := *i
	now.Zone = shortened(now.Zone, maxZone)
	if err := check(&now, s.rules); err != nil {
		s.refuse(key, err)
		return
	}
	was, stands := s.instances[key]
	if !stands && len(s.instances) >= s.max {
		s.beyond = true
		s.refuse(key, fmt.Errorf("the source has more than %d instances, which is as many as are taken of one source; remove those that are not called, or narrow down what it reads", s.max))
		return
	}
	delete(s.refused, key)
	if !stands || was != now {
		s.touch(key)
		s.instances[key] = now
	}
}

// refuse takes what stood away, and notes why. So many refusals are noted as instances
// may stand.
func (s *inventory) refuse(key topology.InstanceKey, err error) {
	s.remove(key)
	if len(s.refused) < s.max {
		s.refused[key] = err
	}
}

func (s *inventory) remove(key topology.InstanceKey) {
	delete(s.refused, key)
	if _, stands := s.instances[key]; stands {
		s.touch(key)
		delete(s.instances, key)
	}
}

// roomAgain tells whether one that was refused for being one too many could stand now.
func (s *inventory) roomAgain() bool { return s.beyond && len(s.instances) < s.max }

// touch notes what the topology was told of an instance, before its first change since.
func (s *inventory) touch(key topology.InstanceKey) {
	if _, noted := s.touched[key]; noted {
		return
	}
	s.touched[key] = nil
	if told, stands := s.instances[key]; stands {
		s.touched[key] = &told
	}
}

// flush is what the topology must be told, in portions. What goes comes after what is put, so
// that no app is without instances between two portions.
func (s *inventory) flush(source string, rank topology.Rank, first bool) (changes []topology.InstanceChange) {
	put, gone := s.different()
	change := topology.InstanceChange{Source: source, Rank: rank, Full: first}
	next := func(full bool) {
		if full {
			changes = append(changes, change)
			change = topology.InstanceChange{Source: source, Rank: rank}
		}
	}
	for _, key := range put {
		change.Put = append(change.Put, s.instances[key])
		next(len(change.Put) == portion)
	}
	for _, key := range gone {
		change.Delete = append(change.Delete, key)
		next(len(change.Put)+len(change.Delete) >= portion)
	}
	next(change.Full || len(change.Put)+len(change.Delete) > 0)
	s.touched = map[topology.InstanceKey]*catalog.Instance{} // the old one may have grown large
	return changes
}

// different are the instances that are other than the topology was told, by name, and those
// that have gone.
func (s *inventory) different() (put, gone []topology.InstanceKey) {
	for key, told := range s.touched {
		now, stands := s.instances[key]
		switch {
		case stands && (told == nil || *told != now):
			put = append(put, key)
		case !stands && told != nil:
			gone = append(gone, key)
		}
	}
	slices.SortFunc(put, compareKeys)
	return put, gone
}

func compareKeys(a, b topology.InstanceKey) int {
	return cmp.Or(a.App.Compare(b.App), strings.Compare(a.ID, b.ID))
}

// refusals are ours, the first few by name.
func (s *inventory) refusals(few int) []Refusal {
	keys := make([]topology.InstanceKey, 0, len(s.refused))
	for key := range s.refused {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, compareKeys)
	var all []Refusal
	for _, key := range keys[:min(few, len(keys))] {
		all = append(all, Refusal{fmt.Sprintf("instance %s of %s", printable(key.ID), printable(key.App.String())), s.refused[key]})
	}
	return all
}

// check tells why an instance can't be used.
func check(i *catalog.Instance, rules *destination.Rules) error {
	switch err := i.App.Check(); {
	case err != nil:
		return err
	case i.ID == "" || len(i.ID) > maxID || !utf8.ValidString(i.ID):
		return fmt.Errorf("its ID has %d bytes; want text of 1 to %d", len(i.ID), maxID)
	}
	return rules.Instance(i.Address)
}

// shortened is a text of at most so many bytes.
func shortened(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// printable is a name as it can stand in a log and a table.
func printable(name string) string {
	if len(name) > maxName {
		name = shortened(name, maxName) + "…"
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == utf8.RuneError }) {
		return fmt.Sprintf("%q", name)
	}
	return name
}
