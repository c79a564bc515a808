package resolverservice

import (
	"context"
	"log/slog"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/stream"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/consul"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/etcd"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/kubernetes"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/static"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/probe"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// Instances says where instances are known from, beside their own streams and
// AppInstance objects. All that are named are used.
type Instances struct {
	Kubernetes *kubernetes.Config `yaml:"kubernetes"`
	Consul     *consul.Config     `yaml:"consul"`
	Etcd       *etcd.Config       `yaml:"etcd"`
	Delegates  []Delegate         `yaml:"delegates"`
}

func (c checker) checkInstances() {
	if c.Declared.Annotations && c.Instances.Kubernetes == nil && !c.doc.Wrong("instances") {
		c.doc.Refuse("declared.annotations", "nothing reads pods here", "write instances: {kubernetes: {}}, or leave it out")
	}
	silent := slog.New(slog.DiscardHandler)
	if k := c.Instances.Kubernetes; k != nil && !c.doc.Wrong("instances.kubernetes") {
		_, err := kubernetes.New(*k, silent)
		c.doc.Merge("instances.kubernetes", err)
	}
	if k := c.Instances.Consul; k != nil && !c.doc.Wrong("instances.consul") {
		_, err := consul.New(*k, silent)
		c.doc.Merge("instances.consul", err)
	}
	if e := c.Instances.Etcd; e != nil && !c.doc.Wrong("instances.etcd") {
		source, err := etcd.Open(*e, "any", "any", silent)
		if err == nil {
			err = source.Close()
		}
		c.doc.Merge("instances.etcd", err)
	}
}

// sources are where instances come from, beside sidecars' streams.
type sources struct {
	feed *instances.Feed
	// kubernetes is the source of that name; nil: there is none.
	kubernetes *kubernetes.Source
	shared     *etcd.Source // nil: replicas share nothing by it
	clock      *topology.Clock
	prober     *probe.Prober // holds all checks to one set of rules
	settled    chan struct{} // closed by settle
}

// build makes every source that the configuration names. Instances of a source that can't be
// read at first come once it can: build asks no server. It describes this replica to others
// by describe.
func (c *sources) build(cfg *Config, feed *objects.Feed, t *topology.Topology, destinations *destination.Rules, describe func() map[string]string, log *slog.Logger) (err error) {
	c.prober = probe.New(probe.Config{Targets: destinations})
	c.clock = &topology.Clock{}
	all := []instances.Source{static.New(feed.Instances(), c.prober)}
	if k := cfg.Instances.Kubernetes; k != nil {
		settings := *k
		settings.Calls = cfg.Declared.Annotations
		source, err := kubernetes.New(settings, log)
		if err != nil {
			return err
		}
		all = append(all, source)
		c.kubernetes = source
	}
	if k := cfg.Instances.Consul; k != nil {
		source, err := consul.New(*k, log)
		if err != nil {
			return err
		}
		all = append(all, source)
	}
	if e := cfg.Instances.Etcd; e != nil {
		source, err := etcd.Open(*e, cfg.Cluster, cfg.replica(), log.With("source", etcd.Name))
		if err != nil {
			return err
		}
		source.Describe(describe)
		all = append(all, source)
		c.shared, c.clock = source, source.Clock()
	}
	c.feed, err = instances.NewFeed(instances.FeedConfig{Sources: all, SettleWithin: settleWithin, Destinations: destinations}, t, log)
	if err != nil {
		return err
	}
	feed.After(c.feed.Settled())
	return nil
}

func (c *sources) close() error {
	if c.shared == nil {
		return nil
	}
	return c.shared.Close()
}

// settleWithin is how long a service that starts serves nobody while it has not heard
// every source.
const settleWithin = 5 * time.Second

// How long sidecars have to reconnect to a service that has started: after its own restart, and
// after an outage of all replicas. Nobody knows then what runs, and sidecars that have backed
// off for long take their time.
var (
	rejoinAfterRestart = 5 * time.Second
	rejoinAfterOutage  = stream.DefaultRejoinTimeout
)

// settle waits until views have all that they had before the service started, as far as that can
// be known, and then closes settled, on which streams wait. A little later, when sidecars had
// time to reconnect, it settles the topology.
func (c *sources) settle(ctx context.Context, peers <-chan struct{}, t *topology.Topology) {
	for _, heard := range []<-chan struct{}{peers, c.feed.Settled()} {
		select {
		case <-heard:
		case <-ctx.Done():
			return
		}
	}
	if c.shared != nil && c.shared.Alone(ctx) {
		// All replicas were gone for as long as half a lease or more. A view without the
		// sidecars that are still to come would be worse than the one that each has.
		if !live.Sleep(ctx, rejoinAfterOutage) {
			return
		}
	}
	close(c.settled)
	if c.shared != nil {
		c.shared.Settle()
	}
	if live.Sleep(ctx, rejoinAfterRestart) {
		t.Settle()
	}
}

// addStatus adds the sources to the status.
func (c *sources) addStatus(answer *v1alpha1.StatusResponse) {
	all, _ := c.feed.Status().Load()
	for _, status := range all {
		answer.Sources = append(answer.Sources, status.Message())
	}
}
