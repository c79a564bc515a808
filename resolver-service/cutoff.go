package resolverservice

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/etcd"
	"github.com/isthmus-mesh/isthmus/resolver-service/peering"
)

// cutOff finds out whether another replica hears all peers that this one hears, and more. Then
// sidecars are better off there.
type cutOff struct {
	reach    func() []peering.Reach
	tell     func(hears []string) // tells other replicas
	others   func() []etcd.Member
	turnAway func(why string) // sends sidecars to other replicas; empty: no longer

	since map[string]time.Time // by cluster, when another replica was first found to hear more

	mu      sync.Mutex
	heardBy map[string][]string // the clusters for which sidecars are sent away, and who hears them
}

// cutOffPause is the time between two looks.
const cutOffPause = time.Second

// run looks again and again until ctx ends.
func (c *cutOff) run(ctx context.Context) error {
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

func (c *cutOff) look(now time.Time) {
	all := c.reach()
	var hears []string
	for _, r := range all {
		if r.Heard {
			hears = append(hears, r.Cluster)
		}
	}
	c.tell(hears)
	heardBy := map[string][]string{}
	since := map[string]time.Time{}
	for _, r := range all {
		by := c.better(r.Cluster, hears)
		if r.Heard || len(by) == 0 {
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
	c.turnAway(reasonToLeave(heardBy))
}

// better are the replicas that hear a cluster, and all others that this one hears.
func (c *cutOff) better(cluster string, hears []string) (names []string) {
	for _, m := range c.others() {
		if slices.Contains(m.Hears, cluster) && !slices.ContainsFunc(hears, func(h string) bool { return !slices.Contains(m.Hears, h) }) {
			names = append(names, m.Replica)
		}
	}
	return names
}

func reasonToLeave(heardBy map[string][]string) string {
	if len(heardBy) == 0 {
		return ""
	}
	return fmt.Sprintf("this replica does not hear %s, and others do", strings.Join(slices.Sorted(maps.Keys(heardBy)), ", "))
}

// addStatus adds who hears the peers that this replica does not.
func (c *cutOff) addStatus(answer *v1alpha1.StatusResponse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range answer.GetPeers() {
		p.HeardBy = c.heardBy[p.GetCluster()]
	}
}
