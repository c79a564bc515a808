// Package etcd shares instances that sidecars register by their streams between the replicas of a
// resolver service. Each replica writes its own below keys of etcd, under a lease of its own, and
// follows the others'. It is a source of instances, and the registry of streams hands it its
// instances.
//
// The source leaves out the instances registered here: their streams are newer than any key.
//
// The new replica of a sidecar that moves overwrites its key, and the old one deletes only keys
// that are still its own. So the last one has the key. A replica that ends leaves its keys to its
// lease. So its sidecars stay in all views until they have come back elsewhere. A registration
// restored after a restart yields to a later one, by [catalog.Instance.Since].
package etcd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/internal/strict"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Name is what this source is called.
const Name = "etcd"

// Bounds and default of the lease's length. A server gives no lease shorter than one and
// a half times its election timeout, so there is no point in less.
const (
	DefaultTTL  = 20 * time.Second
	shortestTTL = 2 * time.Second
	longestTTL  = 10 * time.Minute
)

// Config says where instances are shared.
type Config struct {
	etcdclient.Config `yaml:",inline"`

	// TTL is how long what a replica has written stands without the replica: so much
	// time its sidecars have to come back to another, once they have noticed (13 s where it
	// went without a word). 20 s by default.
	TTL time.Duration `yaml:"ttl,omitempty"`
}

// Check returns every mistake, with its key.
func (c Config) Check() error {
	errs := strict.Below("", c.Config.Check())
	if c.TTL != 0 && (c.TTL < shortestTTL || c.TTL > longestTTL) {
		errs.Add("ttl", fmt.Sprintf("%s is out of bounds", c.TTL), fmt.Sprintf("write a time from %s to %s", shortestTTL, longestTTL))
	}
	return errs.Err()
}

// Source is the instances that other replicas have written, and keeps those written that
// are registered here. Run and Watch work side by side.
type Source struct {
	client  *etcdclient.Client
	leases  *leases
	root    string // before each key: prefix, format and cluster
	cluster string
	replica string
	common  func() map[string]string // see Describe; may be nil
	log     *slog.Logger

	registered *registered
	replicated *replicated
	settled    atomic.Bool
	hears      atomic.Pointer[[]string]
	news       sync.Mutex // held from a change of others until it is told, so that none overtakes another

	telling sync.Mutex // one call of emit at a time, and guards the rest
	emit    func(instances.Change) error
	failing error // why what is registered here can't be written at the moment
}

// Open makes a source for one replica of a cluster's resolver service. It reads the
// files of tls and asks no server.
func Open(c Config, cluster, replica string, log *slog.Logger) (*Source, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := catalog.CheckCluster(cluster); err != nil {
		return nil, err
	}
	client, err := etcdclient.New(c.Config)
	if err != nil {
		return nil, err
	}
	return &Source{
		client: client, leases: newLeases(client, cmp.Or(c.TTL, DefaultTTL)), root: rootOf(c.Prefix, cluster), cluster: cluster, replica: replica,
		log: log, registered: newRegistered(), replicated: newReplicated(),
	}, nil
}

// Name is that of instances.Source.
func (s *Source) Name() string { return Name }

// Rank is that of instances.Source: sidecars registered with other replicas.
func (s *Source) Rank() topology.Rank { return topology.Live }

// Close lets go of the connection, once Run and Watch have ended. Its keys stay for as long as
// their lease lasts.
func (s *Source) Close() error {
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("instances etcd: close the connection to %s: %w", s.client.Servers(), err)
	}
	return nil
}

// fail is the error of something that was tried: what, where, why, and what to do.
func (s *Source) fail(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("instances etcd: %s %s at %s: %w", what, s.root, s.client.Servers(), s.client.Explain(err))
}

// tell hands news to who watches, if anybody does just now.
func (s *Source) tell(c instances.Change) error {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.emit == nil {
		return nil
	}
	if s.failing != nil {
		c.Refused = []instances.Refusal{{
			Where: "what sidecars registered with this replica, " + s.replica,
			Err:   fmt.Errorf("other replicas are not told of changes: %w", s.failing),
		}}
	}
	c.Refused = append(c.Refused, s.replicated.refusals()...)
	c.Remarks = s.replicated.strangers(s.self(), s.leases.first, s.cluster)
	return s.emit(c)
}

// tellTo has tell hand news to emit, or to nobody.
func (s *Source) tellTo(emit func(instances.Change) error) {
	s.telling.Lock()
	defer s.telling.Unlock()
	s.emit = emit
}

// writing says whether what is registered here can be written; nil: it can.
func (s *Source) writing(err error) {
	s.telling.Lock()
	was := s.failing
	s.failing = err
	s.telling.Unlock()
	switch {
	case err != nil && was == nil:
		s.log.Warn("what sidecars register here can't be shared; other replicas keep what they know for as long as the lease lasts", "err", err, "lease", s.leases.ttl)
	case err == nil && was != nil:
		s.log.Info("what sidecars register here is shared again")
	}
	if (err == nil) != (was == nil) {
		_ = s.tell(instances.Change{}) // an error is that of who watches
	}
}
