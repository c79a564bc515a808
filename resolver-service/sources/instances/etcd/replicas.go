package etcd

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

// member is what is written of a replica.
type member struct {
	Replica string `json:"replica"`
	Settled bool   `json:"settled"`
	// Common is what all replicas of one cluster have in common, by what it is called: those
	// that differ in it are of two clusters, or a new configuration has not reached all.
	Common map[string]string `json:"common,omitempty"`
	// Hears are the clusters that the replica hears, in order.
	Hears []string `json:"hears,omitempty"`

	gone bool // its key is; something else that it wrote is not yet
}

func (m member) encode() string {
	text, _ := json.Marshal(m) // of such fields it can't fail
	return string(text)
}

// Describe has the replica publish the settings that all of its cluster should share. It comes
// before Run and Watch; common is called now and then, and must not block.
func (s *Source) Describe(common func() map[string]string) { s.common = common }

// self is what is written of this replica.
func (s *Source) self() member {
	m := member{Replica: s.replica, Settled: s.settled.Load()}
	if hears := s.hears.Load(); hears != nil {
		m.Hears = *hears
	}
	if s.common != nil {
		m.Common = s.common()
	}
	return m
}

// Hears has other replicas told which clusters this one hears.
func (s *Source) Hears(clusters []string) {
	clusters = slices.Sorted(slices.Values(clusters))
	if before := s.hears.Swap(&clusters); before == nil || !slices.Equal(*before, clusters) {
		s.registered.wakeWriter()
	}
}

// Members are the other replicas of this cluster that have settled.
func (s *Source) Members() (all []instances.Member) {
	self, o := s.self(), s.replicated
	o.mu.Lock()
	defer o.mu.Unlock()
	for lease, m := range o.present {
		if lease != s.leases.first && m.Settled && !m.gone && self.differs(m) == "" {
			all = append(all, instances.Member{Replica: m.Replica, Hears: m.Hears})
		}
	}
	slices.SortFunc(all, func(a, b instances.Member) int { return strings.Compare(a.Replica, b.Replica) })
	return all
}

// replica notes that a replica has come, or gone.
func (o *replicated) replica(p pair) {
	lease, err := strconv.ParseInt(strings.TrimPrefix(p.key, replicas), 16, 64)
	if p.deleted && err == nil {
		if m, ok := o.present[lease]; ok {
			m.gone, o.refusal = true, true // its keys tell what of it has gone
			o.present[lease] = m
			o.part(lease)
		}
	}
	if _, there := o.present[p.lease]; p.deleted || !there && len(o.present) >= mostReplicas {
		return
	}
	var m member
	if len(p.value) <= maxValue {
		_ = json.Unmarshal(p.value, &m) // one that can't be read is there all the same
	}
	o.present[p.lease], o.refusal = m, true
}

// release notes that a replica has one key less.
func (o *replicated) release(lease int64) {
	if o.held[lease]--; o.held[lease] == 0 {
		delete(o.held, lease)
		o.part(lease)
	}
}

// part forgets a replica that is gone with all that it wrote: so those that end again and
// again take nobody's place.
func (o *replicated) part(lease int64) {
	if o.present[lease].gone && o.held[lease] == 0 {
		delete(o.present, lease)
	}
}

// previousRunEnded says that our previous run must have ended: who has our name now is another.
func (o *replicated) previousRunEnded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.previousEnded = true
}

// strangers are the replicas that seem to be none of this cluster. They are told of, and no
// more: while a configuration is rolled out, replicas of one cluster differ too.
func (o *replicated) strangers(self member, ours int64, cluster string) (all []instances.Refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for lease, m := range o.present {
		if lease == ours || m.gone {
			continue
		}
		var why []string
		if o.previousEnded && m.Replica == self.Replica {
			why = append(why, "it has the name of this one, so give each replica of the cluster a name of its own")
		}
		if differs := self.differs(m); differs != "" {
			why = append(why, differs+", which passes where a new configuration is on its way to all replicas")
		}
		if len(why) > 0 {
			all = append(all, instances.Refusal{
				Where: fmt.Sprintf("replica %s, lease %x", clipped(m.Replica), lease),
				Err: fmt.Errorf("%s; where it is of another cluster that is called %s too, give each cluster a prefix of its own (instances.etcd.prefix): until then both take each other's instances for theirs",
					strings.Join(why, "; "), cluster),
			})
		}
	}
	slices.SortFunc(all, func(a, b instances.Refusal) int { return strings.Compare(a.Where, b.Where) })
	return all
}

// differs says in what another is not what a replica of the same cluster would be; empty for
// nothing. What one of the two does not say, as a replica of another version, is no difference.
func (m member) differs(other member) string {
	var all []string
	for _, what := range slices.Sorted(maps.Keys(m.Common)) {
		if theirs, said := other.Common[what]; said && theirs != m.Common[what] {
			all = append(all, fmt.Sprintf("its %s is %s, and here %s", what, clipped(theirs), clipped(m.Common[what])))
		}
	}
	return strings.Join(all, "; ")
}

// clipped is what another has written, fit for a log.
func clipped(text string) string {
	const most = 100
	return fmt.Sprintf("%q", catalog.Clip(text, most))
}

// Alone tells whether there is no other replica that has settled, and that is there or was until
// lately: then only sidecars know which instances run. A live replica renews its lease long before
// half of it is left. One with less is gone, and soon its keys will be, before all of its sidecars
// had the time to come back.
func (s *Source) Alone(ctx context.Context) bool {
	timed, cancel := context.WithTimeout(ctx, s.client.Config.Timeout)
	defer cancel()
	for _, lease := range s.replicated.settled(s.leases.first) {
		left, err := s.client.TimeToLive(timed, clientv3.LeaseID(lease))
		if err != nil {
			s.log.Warn("nobody tells whether there are other replicas; sidecars keep their views for a while", "err", s.fail(ctx, "ask for a lease of", err))
			return true
		}
		if 2*left.TTL >= left.GrantedTTL && left.TTL > 0 {
			return false
		}
	}
	return true
}

// settled are the replicas but for one that are there, or were, and have settled.
func (o *replicated) settled(but int64) (leases []int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for lease, m := range o.present {
		if lease != but && m.Settled {
			leases = append(leases, lease)
		}
	}
	return leases
}
