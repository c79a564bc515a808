package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Alone tells whether there is no other replica that has settled, and that is there or was
// until lately: then only sidecars know what runs. One that is there renews its lease long
// before half of it is left. One with less is gone, and soon what it has written will be,
// before all of its sidecars had the time to come back.
func (s *Source) Alone(ctx context.Context) bool {
	timed, cancel := context.WithTimeout(ctx, s.client.Config.Timeout)
	defer cancel()
	for _, lease := range s.replicated.settled(s.lease) {
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
