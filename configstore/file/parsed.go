package file

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/smimcs"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// parsed is what a file says. It is immutable.
type parsed struct {
	info    os.FileInfo
	steady  bool              // it had been left alone for a while when it was read
	sum     [sha256.Size]byte // of its name and bytes
	objects map[catalog.Key]configstore.Stored
	bad     map[catalog.Key]error // objects that can be told but not used
	foreign map[smimcs.ID]*smimcs.Document
	broken  error // why it is not known what else the file should have held
	single  bool  // one document, with nothing that a rewrite would lose
}

// holds tells whether the file has something to say about an object.
func (p *parsed) holds(key catalog.Key) bool {
	if p == nil {
		return false
	}
	_, good := p.objects[key]
	return good || p.bad[key] != nil
}

// empty tells whether a file that can be read has nothing in it.
func (p *parsed) empty() bool {
	return p.broken == nil && len(p.objects)+len(p.bad)+len(p.foreign) == 0
}

// keys is every object that the file has something to say about.
func (p *parsed) keys() []catalog.Key {
	if p == nil {
		return nil
	}
	keys := make([]catalog.Key, 0, len(p.objects)+len(p.bad))
	for key := range p.objects {
		keys = append(keys, key)
	}
	for key := range p.bad {
		keys = append(keys, key)
	}
	return keys
}

// read reads a file, and parses it if it is not as it was when any reader last did.
// The error is errGone or nil: a file that can't be read is broken.
func (s *Store) read(name string) (*parsed, error) {
	data, info, err := s.load(name)
	if err == errGone {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.parsed, name)
		return nil, errGone
	}
	if err != nil {
		return &parsed{info: info, sum: sha256.Sum256([]byte(name + "\x00\x00" + err.Error())), broken: err}, nil
	}
	if len(data) > largeFile {
		s.parsing.Lock() // another reader may be about to know what is in it
		defer s.parsing.Unlock()
	}
	sum := sumOf(name, data)
	s.mu.Lock()
	known := s.parsed[name]
	s.mu.Unlock()
	p := &parsed{}
	if known != nil && known.sum == sum {
		*p = *known
	} else {
		p = parse(filepath.Join(s.dir, name), data)
	}
	p.info, p.sum, p.steady = info, sum, time.Since(info.ModTime()) > steadyAfter
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parsed[name] = p
	return p, nil
}

// steadyAfter is how far back a file's last change must lie for the next one to show in
// its time: some file systems count in seconds.
const steadyAfter = 3 * time.Second

// unchanged is what a file said when it was last read, if it has not been written since.
func (s *Store) unchanged(name string, info os.FileInfo) *parsed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.parsed[name]; p != nil && p.steady && sameInfo(p.info, info) {
		return p
	}
	return nil
}

// readMany reads many files on every processor, and a few on the caller's goroutine.
// Those that are gone are nil.
func (s *Store) readMany(names []string) map[string]*parsed {
	all := make([]*parsed, len(names))
	configstore.Spread(len(names), 64, func(i int) { all[i], _ = s.read(names[i]) })
	byName := make(map[string]*parsed, len(names))
	for i, name := range names {
		byName[name] = all[i]
	}
	return byName
}

func sumOf(name string, data []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write([]byte(name + "\x00"))
	h.Write(data)
	h.Sum(sum[:0])
	return sum
}

func parse(path string, data []byte) *parsed {
	p := &parsed{bad: map[catalog.Key]error{}, foreign: map[smimcs.ID]*smimcs.Document{}}
	manifests, errs := api.DecodeFile(path, data, func(root *strict.Node) bool {
		d := smimcs.Decode(path, root)
		if d == nil {
			return false
		}
		if first := p.foreign[d.ID]; first != nil {
			d = smimcs.Doubled(first, d)
		}
		p.foreign[d.ID] = d
		return true
	})
	if len(manifests) == 0 && len(errs) == 1 && errs[0].Key == (catalog.Key{}) {
		clear(p.foreign) // of a file that is no YAML nothing is taken
	}
	p.objects = make(map[catalog.Key]configstore.Stored, len(manifests))
	for _, m := range manifests {
		p.objects[m.Key()] = configstore.Stored{Object: m.Object, Revision: revision(m.Object)}
	}
	byKey := map[catalog.Key]api.Errors{}
	for _, e := range errs {
		byKey[e.Key] = append(byKey[e.Key], e)
	}
	for key, errs := range byKey {
		if key == (catalog.Key{}) {
			p.broken = errs
		} else {
			p.bad[key] = errs
		}
	}
	p.single = p.broken == nil && len(p.objects)+len(p.bad)+len(p.foreign) <= 1 && !commented(data)
	return p
}

// commented tells whether a rewrite could lose a comment. No object has a "#" in it.
func commented(data []byte) bool {
	for _, c := range data {
		if c == '#' {
			return true
		}
	}
	return false
}

// revision is the same for the same object, wherever it stands.
func revision(obj catalog.Object) string {
	sum := sha256.Sum256(api.EncodeJSON(obj))
	return hex.EncodeToString(sum[:8])
}
