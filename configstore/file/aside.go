package file

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// asideFrom is how many bytes have to be read before they are read aside. The next change waits no
// longer than fewer bytes take.
const asideFrom = 256 << 10

// aside reads what takes long beside the watch, so that it holds no other change up.
type aside struct {
	reading sync.WaitGroup
	names   map[string]bool         // of the files that are being read
	next    map[string]bool         // of those that are read after them
	done    chan map[string]*parsed // what files say that were read
	read    map[string]*parsed      // the same, until it is taken
}

func newAside() aside {
	return aside{names: map[string]bool{}, next: map[string]bool{}, done: make(chan map[string]*parsed, 1)}
}

// putAside leaves files to be read aside: the longest, or all if they were replaced at once.
func (w *watch) putAside() {
	if w.whole {
		return
	}
	bytes, sizes := int64(0), make(map[string]int64, len(w.dirty))
	for name := range w.dirty {
		if info, err := os.Stat(filepath.Join(w.store.dir, name)); err == nil {
			sizes[name] = info.Size()
			bytes += info.Size()
		}
	}
	if bytes < asideFrom {
		return
	}
	bytes = 0
	for _, name := range slices.SortedFunc(maps.Keys(w.dirty), func(a, b string) int { return cmp.Compare(sizes[a], sizes[b]) }) {
		if bytes += sizes[name]; w.atOnce || bytes >= asideFrom {
			w.aside.next[name] = true
			delete(w.dirty, name)
		}
	}
}

// readAside begins to read what was put aside.
func (w *watch) readAside() {
	a := &w.aside
	if len(a.names) > 0 || len(a.next) == 0 {
		return
	}
	a.names, a.next = a.next, a.names
	names := slices.Collect(maps.Keys(a.names))
	a.reading.Go(func() { a.done <- w.store.readMany(names) })
}

// take notes what files say that were read aside.
func (a *aside) take(files map[string]*parsed) {
	a.read = files
	clear(a.names)
}

// waits tells whether a file is taken only after those that are being read: it is one of them, or
// an object may be moving between it and them.
func (w *watch) waits(name string, p *parsed) bool {
	names := w.aside.names
	return len(names) > 0 && (names[name] || w.index.loses(name, p) ||
		w.index.shares(name, p, names) || w.index.shares(name, p, w.aside.next))
}
