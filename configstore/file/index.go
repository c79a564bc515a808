package file

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/derived"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
)

// index is what all files say together. An update costs what it touches.
type index struct {
	dir     string
	files   map[string]*parsed
	claims  map[catalog.Key][]string // the files that have an object, sorted
	named   map[smimcs.ID]int        // how many files have a document; without its file
	stands  map[catalog.Key]configstore.Stored
	refused map[string]configstore.Refusal // by key and place
	touched map[catalog.Key]bool           // since the last change
	changed bool                           // anything, since the last change
	mended  bool                           // a file that was broken is not: what it held is not all known
	sum     [sha256.Size]byte              // of all files
	derived *derived.Objects               // of documents of other standards; nil for a reader of what is written
}

func newIndex(dir string) *index {
	return &index{
		dir: dir, files: map[string]*parsed{}, claims: map[catalog.Key][]string{}, stands: map[catalog.Key]configstore.Stored{},
		refused: map[string]configstore.Refusal{}, touched: map[catalog.Key]bool{}, named: map[smimcs.ID]int{},
	}
}

// update takes what a file says now; nil when it is gone. Of a broken file, all that
// it said before and does not say otherwise stands.
func (x *index) update(name string, p *parsed) {
	old := x.files[name]
	if old != nil && p != nil && old.sum == p.sum {
		x.files[name] = withInfo(old, p)
		return
	}
	x.changed = true
	x.mix(old)
	x.mix(p)
	if old != nil && old.broken != nil {
		x.mended = true
	}
	where := filepath.Join(x.dir, name)
	delete(x.refused, where)
	if p != nil && p.broken != nil {
		x.refused[where] = configstore.Refusal{Where: where, Err: p.broken}
		p = heir(old, p)
	}
	x.claim(name, old, p)
	if p == nil {
		delete(x.files, name)
	} else {
		x.files[name] = p
	}
}

func withInfo(old, p *parsed) *parsed {
	same := *old
	same.info = p.info
	return &same
}

// heir is a broken file with what it said before.
func heir(old, p *parsed) *parsed {
	if old == nil {
		return p
	}
	both := *p
	both.foreign = maps.Clone(old.foreign)
	maps.Copy(both.foreign, p.foreign)
	both.objects, both.bad = maps.Clone(old.objects), maps.Clone(old.bad)
	for _, key := range p.keys() {
		delete(both.objects, key)
		delete(both.bad, key)
	}
	for key, stored := range p.objects {
		if both.objects == nil {
			both.objects = map[catalog.Key]configstore.Stored{}
		}
		both.objects[key] = stored
	}
	for key, err := range p.bad {
		if both.bad == nil {
			both.bad = map[catalog.Key]error{}
		}
		both.bad[key] = err
	}
	return &both
}

// mix adds or takes away a file's part of the sum.
func (x *index) mix(p *parsed) {
	if p == nil {
		return
	}
	for i := range x.sum {
		x.sum[i] ^= p.sum[i]
	}
}

func (x *index) claim(name string, old, p *parsed) {
	for _, key := range old.keys() {
		x.touched[key] = true
		if at, there := slices.BinarySearch(x.claims[key], name); there {
			x.claims[key] = slices.Delete(x.claims[key], at, at+1)
		}
	}
	for _, key := range p.keys() {
		x.touched[key] = true
		at, _ := slices.BinarySearch(x.claims[key], name)
		x.claims[key] = slices.Insert(x.claims[key], at, name)
	}
	x.documents(old, p)
}

// documents takes the documents of other standards that a file has now.
func (x *index) documents(old, p *parsed) {
	was, is := old.documents(), p.documents()
	for id := range was {
		if x.named[anywhere(id)]--; x.named[anywhere(id)] == 0 {
			delete(x.named, anywhere(id))
		}
	}
	for id := range is {
		x.named[anywhere(id)]++
	}
	if x.derived == nil {
		return
	}
	for id := range was {
		if is[id] == nil {
			x.derived.Take(id, nil)
		}
	}
	for id, d := range is {
		if was[id] != d {
			x.derived.Take(id, d)
		}
	}
}

// loses tells whether anything would be gone if a file said no more than p: what it had and no
// other file has.
func (x *index) loses(name string, p *parsed) bool {
	old := x.files[name]
	for _, key := range old.keys() {
		if !p.holds(key) && len(x.claims[key]) == 1 {
			return true
		}
	}
	for id := range old.documents() {
		if p.documents()[id] == nil && x.named[anywhere(id)] == 1 {
			return true
		}
	}
	return false
}

// shares tells whether a file has an object that one of other files has, too.
func (x *index) shares(name string, p *parsed, others map[string]bool) bool {
	for _, key := range p.keys() {
		if slices.ContainsFunc(x.claims[key], func(other string) bool { return others[other] && other != name }) {
			return true
		}
	}
	return false
}

// anywhere is a document's name without its file.
func anywhere(id smimcs.ID) smimcs.ID {
	id.File = ""
	return id
}

func (p *parsed) documents() map[smimcs.ID]*smimcs.Document {
	if p == nil {
		return nil
	}
	return p.foreign
}

func (x *index) version() configstore.Version {
	return configstore.Version(hex.EncodeToString(x.sum[:16]))
}

// change is what has happened since the last call, and whether anything has.
func (x *index) change(full bool) (configstore.Change, bool) {
	news := x.changed || full
	c := configstore.Change{Full: full || x.mended, Version: x.version()}
	for key := range x.touched {
		x.resolve(key, &c)
	}
	if c.Full {
		c.Deleted = nil
		c.Objects = slices.Collect(maps.Values(x.stands))
	}
	c.Refused = slices.Collect(maps.Values(x.refused))
	if x.derived != nil {
		x.derived.Add(&c, maps.Keys(x.touched), func(key catalog.Key) bool { return len(x.claims[key]) > 0 })
		c.Refused = append(c.Refused, x.derived.Refused()...)
	}
	slices.SortFunc(c.Objects, func(a, b configstore.Stored) int { return a.Object.Key().Compare(b.Object.Key()) })
	slices.SortFunc(c.Deleted, catalog.Key.Compare)
	slices.SortFunc(c.Refused, func(a, b configstore.Refusal) int {
		return cmp.Or(cmp.Compare(a.Where, b.Where), a.Key.Compare(b.Key))
	})
	x.touched, x.changed, x.mended = map[catalog.Key]bool{}, false, false
	return c, news
}

// resolve decides on one object, and returns why it is refused, if it is.
func (x *index) resolve(key catalog.Key, c *configstore.Change) error {
	id := "\x00" + key.String()
	delete(x.refused, id)
	names := x.claims[key]
	switch len(names) {
	case 0:
		delete(x.claims, key)
		delete(x.stands, key)
		c.Deleted = append(c.Deleted, key)
		return nil
	case 1:
		p := x.files[names[0]]
		if err := p.bad[key]; err != nil {
			x.refused[id] = configstore.Refusal{Key: key, Where: filepath.Join(x.dir, names[0]), Err: err}
			return err
		}
		stored := p.objects[key]
		if was, ok := x.stands[key]; !ok || !reflect.DeepEqual(was, stored) {
			x.stands[key] = stored
			c.Objects = append(c.Objects, stored)
		}
		return nil
	default:
		err := x.doubled(key)
		x.refused[id] = configstore.Refusal{Key: key, Where: filepath.Join(x.dir, names[0]), Err: err}
		return err
	}
}

func (x *index) doubled(key catalog.Key) error {
	return fmt.Errorf("%s is in several files of %s: %s; leave it in one of them", key, x.dir, catalog.Brief(x.claims[key]))
}
