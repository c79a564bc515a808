package dial

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Calls counts the calls to an app in one cluster. A call that is made again at another endpoint
// counts again.
type Calls struct {
	App     catalog.App
	Cluster string // "" for calls that failed because no endpoint was connected
	Begun   uint64
	Failed  map[codes.Code]uint64
}

// Calls returns the counts of all apps that were called, sorted by app and cluster.
func (d *Dialer) Calls() (all []Calls) {
	for c := range d.apps() {
		all = append(all, c.counts.read(c.app)...)
	}
	slices.SortFunc(all, func(a, b Calls) int {
		return strings.Compare(a.App.String()+" "+a.Cluster, b.App.String()+" "+b.Cluster)
	})
	return all
}

// apps are the callees by their own names, which have the counts.
func (d *Dialer) apps() iter.Seq[*callee] {
	return func(yield func(*callee) bool) {
		d.callees.Range(func(_, found any) bool {
			c := found.(*callee)
			return c.renamed() || yield(c)
		})
	}
}

// callCounts has the counts of one app by cluster. A call that begins counts in the routeState of
// its channel, which round robin needs anyway. So counting costs calls that succeed nothing.
type callCounts struct {
	mu       sync.Mutex
	clusters map[string]*clusterCounts
}

type clusterCounts struct {
	failed [codes.Unauthenticated + 1]atomic.Uint64 // by code; gRPC has no other codes

	made made

	// The fields below belong to callCounts.mu.
	open   map[*routeState]struct{} // of open channels
	closed uint64                   // calls begun on channels that are closed
}

// of returns the counts of a cluster. The caller holds the lock.
func (c *callCounts) of(cluster string) *clusterCounts {
	counts := c.clusters[cluster]
	if counts == nil {
		counts = &clusterCounts{open: map[*routeState]struct{}{}}
		if c.clusters == nil {
			c.clusters = map[string]*clusterCounts{}
		}
		c.clusters[cluster] = counts
	}
	return counts
}

// open returns the state of a channel's calls to a cluster, which counts them until close.
func (c *callCounts) open(cluster string) *routeState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &routeState{counts: c.of(cluster)}
	s.counts.open[s] = struct{}{}
	return s
}

// close keeps what a closed channel has counted.
func (c *callCounts) close(s *routeState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := s.counts.open[s]; ok {
		delete(s.counts.open, s)
		s.counts.closed += s.next.Load()
	}
}

// unconnected counts a call that failed because no endpoint was connected.
func (c *callCounts) unconnected() {
	c.mu.Lock()
	counts := c.of("")
	counts.closed++
	c.mu.Unlock()
	counts.fail(codes.Unavailable)
}

func (c *clusterCounts) fail(code codes.Code) {
	if int(code) >= len(c.failed) {
		code = codes.Unknown // an app may answer any number
	}
	c.failed[code].Add(1)
}

func (c *callCounts) read(app catalog.App) (all []Calls) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cluster := range slices.Sorted(maps.Keys(c.clusters)) {
		counts := c.clusters[cluster]
		calls := Calls{App: app, Cluster: cluster, Begun: counts.closed, Failed: map[codes.Code]uint64{}}
		for s := range counts.open {
			calls.Begun += s.next.Load()
		}
		for code := range counts.failed {
			if n := counts.failed[code].Load(); n > 0 {
				calls.Failed[codes.Code(code)] = n
			}
		}
		if calls.Begun > 0 {
			all = append(all, calls)
		}
	}
	return all
}
