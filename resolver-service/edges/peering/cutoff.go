package peering

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// CutOff finds out whether another replica hears all peers that this one hears, and more. Then
// sidecars are better off there. If replicas tell each other nothing, any other may be better than
// one that does not hear a peer.
type CutOff struct {
	Reach    func() []Reach
	Tell     func(hears []string)        // tells other replicas; nil: there is no way to
	Others   func() []instances.Member   // that tell this one
	TurnAway func(why string, sure bool) // sends sidecars to other replicas; empty: no longer

	since map[string]time.Time // by cluster, when another replica was first found to hear more, or may

	mu      sync.Mutex
	heardBy map[string][]string // the clusters for which sidecars are sent away, and who hears them
}

// cutOffPause is the time between two looks.
const cutOffPause = time.Second

// Run looks again and again until ctx ends.
func (c *CutOff) Run(ctx context.Context) error {
	tick := time.NewTicker(cutOffPause)
	defer tick.Stop()
	for {
		c.look(time.Now())
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *CutOff) look(now time.Time) {
	all := c.Reach()
	var hears []string
	for _, r := range all {
		if r.Heard {
			hears = append(hears, r.Cluster)
		}
	}
	informed := c.Tell != nil
	if informed {
		c.Tell(hears)
	}
	heardBy := map[string][]string{}
	since := map[string]time.Time{}
	for _, r := range all {
		var by []string
		if informed {
			by = c.better(r.Cluster, hears)
		}
		if r.Heard || informed && len(by) == 0 {
			continue
		}
		since[r.Cluster] = now
		if before, known := c.since[r.Cluster]; known {
			since[r.Cluster] = before
		}
		if now.Sub(since[r.Cluster]) >= r.StaleAfter {
			heardBy[r.Cluster] = by
		}
	}
	c.mu.Lock()
	c.since, c.heardBy = since, heardBy
	c.mu.Unlock()
	c.TurnAway(reasonToLeave(heardBy, informed), informed)
}

// better are the replicas that hear a cluster, and all others that this one hears.
func (c *CutOff) better(cluster string, hears []string) (names []string) {
	for _, m := range c.Others() {
		if slices.Contains(m.Hears, cluster) && !slices.ContainsFunc(hears, func(h string) bool { return !slices.Contains(m.Hears, h) }) {
			names = append(names, m.Replica)
		}
	}
	return names
}

func reasonToLeave(heardBy map[string][]string, informed bool) string {
	if len(heardBy) == 0 {
		return ""
	}
	others := "others may"
	if informed {
		others = "others do"
	}
	return fmt.Sprintf("this replica does not hear %s, and %s", strings.Join(slices.Sorted(maps.Keys(heardBy)), ", "), others)
}

// AddStatus adds who hears the peers that this replica does not.
func (c *CutOff) AddStatus(answer *v1alpha1.StatusResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range answer.GetPeers() {
		p.HeardBy = c.heardBy[p.GetCluster()]
	}
}
