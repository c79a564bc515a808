package instances

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/destination"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

const (
	maxID   = 512 // bytes of an instance's ID
	maxZone = 63  // bytes of a zone; what is beyond is left out
	maxName = 200 // bytes of a name in a refusal
)

// standing is what one source says, and what of it the topology has not been told. It is
// guarded by whoever has it.
type standing struct {
	max       int
	rules     *destination.Rules
	instances map[topology.InstanceKey]catalog.Instance
	refused   map[topology.InstanceKey]error // by us, and not by the source
	beyond    bool                           // some were refused for being too many
	heard     bool                           // the first full set is in

	// touched has what was told of each instance that may differ by now.
	touched map[topology.InstanceKey]*touch
	clock   uint64
}

// touch is one that may differ.
type touch struct {
	told  *catalog.Instance // nil for one that was not told of
	came  uint64            // orders those that came to their addresses, the last with the highest
	stood bool              // it was at its address before the source was heard
	// present says that it has registered since, also where it is as it was told.
	present bool
}

func newStanding(limit int) *standing {
	return &standing{
		max: limit, instances: map[topology.InstanceKey]catalog.Instance{},
		refused: map[topology.InstanceKey]error{}, touched: map[topology.InstanceKey]*touch{},
	}
}

// apply takes a change in.
func (s *standing) apply(c Change) {
	if c.Full {
		s.reset(c.Put)
	} else {
		for _, key := range c.Delete {
			s.remove(key)
		}
	}
	present := make(map[topology.InstanceKey]bool, len(c.Present))
	for _, key := range c.Present {
		present[key] = true
	}
	for i := range c.Put {
		stood := c.Standing || !s.heard
		s.put(&c.Put[i], stood, !stood && present[topology.KeyOf(&c.Put[i])])
	}
	s.heard = s.heard || c.Full
}

// reset takes away what a full set does not have.
func (s *standing) reset(put []catalog.Instance) {
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

func (s *standing) put(i *catalog.Instance, stood, present bool) {
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
	if stands && was == now && !present {
		return
	}
	t := s.touch(key)
	s.instances[key] = now
	if !stands || was.Address != now.Address || present {
		s.clock++
		t.came, t.stood, t.present = s.clock, stood, t.present || present
	}
}

// refuse takes what stood away, and notes why. So many refusals are noted as instances
// may stand.
func (s *standing) refuse(key topology.InstanceKey, err error) {
	s.remove(key)
	if len(s.refused) < s.max {
		s.refused[key] = err
	}
}

func (s *standing) remove(key topology.InstanceKey) {
	delete(s.refused, key)
	if _, stands := s.instances[key]; stands {
		s.touch(key)
		delete(s.instances, key)
	}
}

// roomAgain tells whether one that was refused for being one too many could stand now.
func (s *standing) roomAgain() bool { return s.beyond && len(s.instances) < s.max }

func (s *standing) touch(key topology.InstanceKey) *touch {
	t := s.touched[key]
	if t == nil {
		t = &touch{}
		if told, stands := s.instances[key]; stands {
			t.told = &told
		}
		s.touched[key] = t
	}
	return t
}

// flush is what the topology must be told: what came to its address last comes last, and
// what goes, after it, so that no app is without instances between two portions.
func (s *standing) flush(source string, first bool) (changes []topology.InstanceChange) {
	put, gone := s.different()
	change := topology.InstanceChange{Source: source, Full: first}
	next := func(full bool) {
		if full {
			changes = append(changes, change)
			change = topology.InstanceChange{Source: source}
		}
	}
	for _, key := range put {
		t := s.touched[key]
		next(len(change.Put) > 0 && (change.Standing != t.stood || change.Present != t.present))
		change.Standing, change.Present = t.stood, t.present
		change.Put = append(change.Put, s.instances[key])
		next(len(change.Put) == portion)
	}
	for _, key := range gone {
		change.Delete = append(change.Delete, key)
		next(len(change.Put)+len(change.Delete) >= portion)
	}
	next(change.Full || len(change.Put)+len(change.Delete) > 0)
	s.touched = map[topology.InstanceKey]*touch{} // the old one may have grown large
	return changes
}

// different are those that are other than the topology was told, or have registered since,
// and those that have gone.
// What stood before comes first, and then what came in its order.
func (s *standing) different() (put, gone []topology.InstanceKey) {
	for key, t := range s.touched {
		now, stands := s.instances[key]
		switch {
		case stands && (t.told == nil || *t.told != now || t.present):
			put = append(put, key)
		case !stands && t.told != nil:
			gone = append(gone, key)
		}
	}
	slices.SortFunc(put, func(a, b topology.InstanceKey) int {
		x, y := s.touched[a], s.touched[b]
		if x.stood != y.stood {
			if x.stood {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(x.came, y.came), a.App.Compare(b.App), strings.Compare(a.ID, b.ID))
	})
	return put, gone
}

// refusals are ours, the first few by name.
func (s *standing) refusals(few int) []Refusal {
	keys := make([]topology.InstanceKey, 0, len(s.refused))
	for key := range s.refused {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b topology.InstanceKey) int { return cmp.Or(a.App.Compare(b.App), strings.Compare(a.ID, b.ID)) })
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
