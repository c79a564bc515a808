package resolverservice

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/consul"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/etcd"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/kubernetes"
	"github.com/isthmus-mesh/isthmus/resolver-service/instances/static"
	"github.com/isthmus-mesh/isthmus/resolver-service/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/strict"
)

// Instances says where instances are known from, beside their own streams and
// AppInstance objects. All that are named are used.
type Instances struct {
	Kubernetes *kubernetes.Config `yaml:"kubernetes"`
	Consul     *consul.Config     `yaml:"consul"`
	Etcd       *etcd.Config       `yaml:"etcd"`
	Delegates  []Delegate         `yaml:"delegates"`
}

func (c *Config) checkInstances(doc *strict.Document) {
	silent := slog.New(slog.DiscardHandler)
	if k := c.Instances.Kubernetes; k != nil && !doc.Wrong("instances.kubernetes") {
		_, err := kubernetes.New(*k, silent)
		doc.Merge("instances.kubernetes", err)
	}
	if k := c.Instances.Consul; k != nil && !doc.Wrong("instances.consul") {
		_, err := consul.New(*k, silent)
		doc.Merge("instances.consul", err)
	}
	if e := c.Instances.Etcd; e != nil && !doc.Wrong("instances.etcd") {
		source, err := etcd.Open(*e, "any", "any", silent)
		if err == nil {
			err = source.Close()
		}
		doc.Merge("instances.etcd", err)
	}
}

// sources are where instances come from, and what has to be closed in the end.
type sources struct {
	feed    *instances.Feed
	shared  *etcd.Source // nil: replicas share nothing by it
	clock   *topology.Clock
	closers []io.Closer
}

// buildSources makes every source that the configuration names. Instances of a source
// that can't be read at first come once it can: nothing is asked here.
func (s *Service) buildSources() error {
	s.prober = probe.New(probe.Config{Targets: s.destinations})
	all := []instances.Source{static.New(s.feed.Instances(), s.prober)}
	if c := s.cfg.Instances.Kubernetes; c != nil {
		source, err := kubernetes.New(*c, s.log)
		if err != nil {
			return err
		}
		all = append(all, source)
	}
	if c := s.cfg.Instances.Consul; c != nil {
		source, err := consul.New(*c, s.log)
		if err != nil {
			return err
		}
		all = append(all, source)
	}
	if c := s.cfg.Instances.Etcd; c != nil {
		source, err := etcd.Open(*c, s.cfg.Cluster, s.cfg.replica(), s.log.With("source", etcd.Name))
		if err != nil {
			return err
		}
		source.Describe(s.common)
		all = append(all, source)
		s.sources.shared, s.sources.closers = source, append(s.sources.closers, source)
	}
	s.sources.clock = &topology.Clock{}
	if s.sources.shared != nil {
		s.sources.clock = s.sources.shared.Clock()
	}
	feed, err := instances.NewFeed(instances.FeedConfig{Sources: all, SettleWithin: settleWithin, Destinations: s.destinations}, s.topology, s.log)
	if err != nil {
		return err
	}
	s.sources.feed = feed
	s.feed.After(feed.Settled())
	return nil
}

// settleWithin is how long a service that starts serves nobody while it has not heard
// every source.
const settleWithin = 5 * time.Second

// share is where streams tell what they register; nil for nowhere.
func (s *Service) share() stream.Sharer {
	if s.sources.shared == nil {
		return nil // and no Sharer that is not nil
	}
	return s.sources.shared
}

func (s *Service) closeSources() error {
	var errs []error
	for _, c := range s.sources.closers {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// How long sidecars have to come back to a service that has started. homecoming is for
// traffic to be taken for that of before; exile is where nobody else knows what runs, and
// sidecars have been away from the service for long, so that each may take its time.
var (
	homecoming = 5 * time.Second
	exile      = stream.DefaultRejoinTimeout
)

// settle waits until views have all that they had before the service started, as far as
// that can be known, and then says so to streams; and a little later, when sidecars had
// time to come back, to the topology.
func (s *Service) settle(ctx context.Context) error {
	for _, heard := range []<-chan struct{}{s.links.Settled(), s.sources.feed.Settled()} {
		select {
		case <-heard:
		case <-ctx.Done():
			return nil
		}
	}
	shared := s.sources.shared
	if shared != nil && shared.Alone(ctx) {
		// All replicas were gone for as long as half a lease or more. A view without the
		// sidecars that are still to come would be worse than the one that each has.
		if !live.Sleep(ctx, exile) {
			return nil
		}
	}
	close(s.settled)
	if shared != nil {
		shared.Settle()
	}
	if live.Sleep(ctx, homecoming) {
		s.topology.Settle()
	}
	return nil
}

func (s *Service) addSources(answer *v1alpha1.StatusResponse) {
	answer.Replica = s.cfg.replica()
	answer.Sources = append(answer.Sources, &v1alpha1.SourceStatus{Name: stream.Source, Ready: true, Instances: uint32(s.stream.Instances())})
	s.addEdges(answer)
	all, _ := s.sources.feed.Status().Load()
	for _, status := range all {
		answer.Sources = append(answer.Sources, status.Message())
	}
}
