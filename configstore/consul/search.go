package consul

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/hashicorp/consul/api"
	"golang.org/x/sync/errgroup"

	isthmus "github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore/consul/agent"
)

const (
	// searchFrom is for how many objects it costs less to search for what other hands have
	// changed than to read everything.
	searchFrom = 500
	// searchLeaf is how many objects are rather read than divided further.
	searchLeaf = 100
	// searchAtOnce is how many questions a search asks at once.
	searchAtOnce = 8
)

// searched looks for what other hands have changed up to an index, reads it at one
// moment, and tells whether it was found. Consul says of any beginning of a key at which
// index something below it was changed last; so the search divides the keys by how
// they go on, and goes on where there is news.
func (w *watch) searched(ctx context.Context, index uint64) (bool, error) {
	if len(w.known) < searchFrom {
		return false, nil
	}
	if w.sorted == nil {
		w.sorted = slices.Sorted(maps.Keys(w.known))
	}
	s := search{watch: w}
	s.group.SetLimit(searchAtOnce)
	s.divide(ctx, w.sorted)
	if err := s.group.Wait(); err != nil {
		return false, err
	}
	if len(s.suspects) == 0 || len(s.suspects) >= maxOps {
		return false, nil
	}
	now, err := w.store.some(ctx, s.suspects, &api.QueryOptions{RequireConsistent: true})
	if err != nil {
		return false, err
	}
	if now.head.index != w.head.index { // Isthmus wrote meanwhile, and perhaps more than is suspected
		return false, nil
	}
	for _, p := range now.pairs {
		if later(p.Revision, index) { // with others, perhaps, that were not looked for
			return false, nil
		}
	}
	now.index, w.read = index, max(w.read, index)
	w.unchecked.note() // a new key may have been missed where there were none
	return true, w.learn(now)
}

// search is one search.
type search struct {
	*watch
	group errgroup.Group

	mu       sync.Mutex
	suspects []string
}

// divide asks about each way in which some known paths go on, which are sorted. Of a way
// that most of them take, there is no asking: it is where the news is, rather.
func (s *search) divide(ctx context.Context, paths []string) {
	shared, most := len(begins(paths)), max(searchLeaf, len(paths)/2)
	for len(paths) > 0 {
		end := 1
		if len(paths[0]) > shared {
			next := paths[0][:shared+1]
			for end < len(paths) && strings.HasPrefix(paths[end], next) {
				end++
			}
		}
		part := paths[:end]
		paths = paths[end:]
		if len(part) > most {
			s.divide(ctx, part)
			continue
		}
		ask := func() error { return s.look(ctx, part) }
		if !s.group.TryGo(ask) {
			if err := ask(); err != nil {
				s.group.Go(func() error { return err })
				return
			}
		}
	}
}

// begins is what all of some sorted paths begin with.
func begins(paths []string) string {
	first, last := paths[0], paths[len(paths)-1]
	n := 0
	for n < min(len(first), len(last)) && first[n] == last[n] {
		n++
	}
	return first[:n]
}

// look goes on where something below what these paths begin with is news.
func (s *search) look(ctx context.Context, paths []string) error {
	prefix := s.store.config.Prefix + begins(paths)
	if len(paths) <= searchLeaf {
		return s.leaf(ctx, prefix, paths)
	}
	_, meta, err := s.store.client.KV().Keys(s.store.config.Prefix+s.shortest(paths), "/", (&api.QueryOptions{}).WithContext(ctx))
	if err == nil {
		err = agent.Believe(meta)
	}
	if err != nil || meta.LastIndex <= s.read {
		return err
	}
	s.divide(ctx, paths)
	return nil
}

// shortest is the question about some sorted paths that has the shortest answer, which is
// the names of all keys unless they go on with a slash: where no others of their namespace
// are known, it is that for the namespace.
func (s *search) shortest(paths []string) string {
	prefix := begins(paths)
	namespace := prefix[:strings.LastIndex(prefix, "/")+1]
	from, _ := slices.BinarySearch(s.sorted, namespace)
	to, _ := slices.BinarySearch(s.sorted, namespace+"\xff")
	if namespace == isthmus.KeyPrefix || to-from != len(paths) {
		return prefix
	}
	return strings.TrimSuffix(namespace, "/")
}

// leaf compares what is there with what is known.
func (s *search) leaf(ctx context.Context, prefix string, paths []string) error {
	pairs, meta, err := s.store.client.KV().List(prefix, (&api.QueryOptions{}).WithContext(ctx))
	if err == nil {
		err = agent.Believe(meta)
	}
	if err != nil || meta.LastIndex <= s.read {
		return err
	}
	var now snapshot
	for _, p := range pairs {
		now.add(s.store, p)
	}
	there := make(map[string]bool, len(now.pairs))
	var suspects []string
	for _, p := range now.pairs {
		there[p.Path] = true
		if s.known[p.Path] != p.Revision {
			suspects = append(suspects, p.Path)
		}
	}
	for _, path := range paths {
		if !there[path] {
			suspects = append(suspects, path)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suspects = append(s.suspects, suspects...)
	slices.Sort(s.suspects)
	s.suspects = slices.Compact(s.suspects)
	return nil
}

// later tells whether a revision is after an index.
func later(revision string, index uint64) bool {
	n, err := strconv.ParseUint(revision, 10, 64)
	return err != nil || n > index
}
