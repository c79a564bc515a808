package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"

	nr "github.com/dapr/components-contrib/nameresolution"
	registry "github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/dapr/pkg/diagnostics/utils"
	"golang.org/x/sync/errgroup"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/component"
	"github.com/isthmus-mesh/isthmus/components/daprd/dial"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
	"github.com/isthmus-mesh/isthmus/tests/bench/fleet"
	"github.com/isthmus-mesh/isthmus/tests/bench/resolver"
)

// The sizes of selections: a look-up must cost the same in a small one and in a large one. It costs
// a little less for an app with a single instance, as there is no choice.
var (
	single = selection{first: 0, callees: 10, instances: 1}
	small  = selection{first: 10, callees: 10, instances: 10}
	large  = selection{first: 0, callees: 10_000, instances: 10}

	selections = []selection{single, small, large}
)

// selection is a number of consecutive apps of the fleet.
type selection struct{ first, callees, instances int }

func (s selection) String() string { return fmt.Sprintf("%d callees × %d", s.callees, s.instances) }

func (s selection) caller() catalog.App {
	return catalog.App{Namespace: fleet.Namespace, ID: fmt.Sprintf("caller-of-%d-%d", s.callees, s.instances)}
}

// apps returns the callees. Each has its own copy of its name, as in a request.
func (s selection) apps() []catalog.App {
	apps := make([]catalog.App, s.callees)
	for i := range apps {
		app := fleet.App(s.first + i)
		apps[i] = catalog.App{Namespace: strings.Clone(app.Namespace), ID: strings.Clone(app.ID)}
	}
	return apps
}

// maps adds the baseline: a plain map without a lock, without a choice among instances, that never
// changes.
func (b *bench) maps() {
	byApp, byName := map[catalog.App]string{}, map[string]string{}
	for i := range large.callees {
		address := fleet.Instance(i, 0).Address.String()
		byApp[fleet.App(i)], byName[fleet.App(i).ID] = address, address
	}
	apps := large.apps()
	one := apps[large.callees/2]
	b.add("map[App], 10,000 apps", func(_ context.Context, n int) error {
		for range n {
			if _, ok := byApp[one]; !ok {
				return catalog.ErrNotFound
			}
		}
		return nil
	})
	b.add("map[string], 10,000 apps", func(_ context.Context, n int) error {
		for range n {
			if _, ok := byName[one.ID]; !ok {
				return catalog.ErrNotFound
			}
		}
		return nil
	})
	b.add("map[App], 10,000 apps in turn", func(_ context.Context, n int) error {
		for i := range n {
			if _, ok := byApp[apps[i%len(apps)]]; !ok {
				return catalog.ErrNotFound
			}
		}
		return nil
	})
}

// isthmus starts a resolver service and connects resolvers to it.
func (b *bench) isthmus(ctx context.Context) error {
	address, err := b.service(ctx)
	if err != nil {
		return err
	}
	for _, s := range selections {
		if err := b.connect(ctx, address, s); err != nil {
			return err
		}
	}
	return nil
}

// connect adds a resolver with a selection, alone and as daprd calls it.
func (b *bench) connect(ctx context.Context, address string, s selection) error {
	own := catalog.Instance{App: s.caller(), Address: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(50_100+s.first+s.instances))}
	r, err := resolver.Sidecar(ctx, "west", address, identity.Config{Insecure: true}, own)
	if err != nil {
		return err
	}
	b.atEnd(r.Close)
	apps := s.apps()
	one := apps[len(apps)/2]
	if _, err := r.ResolveID(ctx, one); err != nil {
		return fmt.Errorf("resolve %s as %s: %w", one, s.caller(), err)
	}
	b.add("Isthmus, "+s.String(), func(_ context.Context, n int) error {
		ctx := context.Background()
		for range n {
			if _, err := r.ResolveID(ctx, one); err != nil {
				return err
			}
		}
		return nil
	}).held = true
	b.add("Isthmus, "+s.String()+", in turn", func(_ context.Context, n int) error {
		ctx := context.Background()
		for i := range n {
			if _, err := r.ResolveID(ctx, apps[i%len(apps)]); err != nil {
				return err
			}
		}
		return nil
	})
	return b.adapter(ctx, address, s, one)
}

// adapter adds Isthmus as in daprd: Dapr's registry makes it, and Dapr's interface calls it.
func (b *bench) adapter(ctx context.Context, address string, s selection, one catalog.App) error {
	log := slog.New(slog.DiscardHandler)
	resolvers := registry.NewRegistry()
	resolvers.Logger = quiet()
	component.New(log, dial.New(log, utils.SpanFromContext)).Register(resolvers)
	r, err := resolvers.Create(component.Name, "v1", component.Name)
	if err != nil {
		return err
	}
	md := nr.Metadata{
		Instance:      nr.Instance{AppID: s.caller().ID, Namespace: s.caller().Namespace, Address: "127.0.0.1", DaprInternalPort: 50_200 + s.first + s.instances},
		Configuration: configuration(address),
	}
	if err := r.Init(ctx, md); err != nil {
		return err
	}
	b.atEnd(r.Close)
	return b.addPeer(ctx, "Isthmus as daprd calls it, "+s.String(), r, nr.ResolveRequest{ID: one.ID, Namespace: one.Namespace, Port: 50002})
}

func configuration(address string) map[string]any {
	return map[string]any{"resolver": address, "cluster": "west", "identity": map[string]any{"insecure": true}, "resolveTimeout": "30s"}
}

// service runs a resolver service in this process, until the end.
func (b *bench) service(ctx context.Context) (address string, err error) {
	s, err := resolver.New(ctx, resolver.Config{Cluster: "west", Certificates: resolver.Certificates(b.dir)})
	if err != nil {
		return "", err
	}
	life, end := context.WithCancel(context.Background())
	var running errgroup.Group
	running.Go(func() error { return s.Run(life) })
	b.atEnd(func() error {
		end()
		return running.Wait()
	})
	_, err = s.Topology.Apply(ctx, everything())
	return s.Address(), err
}

// everything returns all callers' selections and the instances of all apps.
func everything() topology.Change {
	var objects []catalog.Object
	for _, s := range selections {
		own := &catalog.AppEndpoints{App: s.caller()}
		for i := range s.callees {
			own.Endpoints = append(own.Endpoints, catalog.Endpoint{App: fleet.App(s.first + i), Line: int32(8 + i)})
		}
		objects = append(objects, own)
	}
	var instances []catalog.Instance
	for i := range large.callees {
		count := large.instances
		if i < single.callees {
			count = single.instances
		}
		for j := range count {
			instances = append(instances, fleet.Instance(i, j))
		}
	}
	return topology.Change{
		Objects:   &topology.ObjectChange{Full: true, Put: objects},
		Instances: []topology.InstanceChange{{Source: "bench", Put: instances}},
	}
}
