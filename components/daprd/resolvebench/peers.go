package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/components-contrib/nameresolution/hashicorp/consul"
	"github.com/dapr/components-contrib/nameresolution/kubernetes"
	"github.com/dapr/components-contrib/nameresolution/mdns"
	"github.com/dapr/components-contrib/nameresolution/nameformat"
	"github.com/dapr/components-contrib/nameresolution/sqlite"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/tests/bench/measure"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// orders is the app that the other resolvers look up: this process, registered with each of them.
var orders = nr.Instance{AppID: "orders", Namespace: "shop", Address: "127.0.0.1", DaprHTTPPort: 3500, DaprInternalPort: 50002, AppPort: 8080}

// quiet is a logger that writes errors only.
func quiet() logger.Logger {
	l := logger.NewLogger("resolvebench")
	l.SetOutputLevel(logger.FatalLevel)
	return l
}

// peers adds the resolvers of components-contrib that can run.
func (b *bench) peers(ctx context.Context, alone bool) {
	for _, p := range []struct {
		name          string
		make          func(logger.Logger) nr.Resolver
		configuration any
	}{
		{"nameformat (looks nothing up)", nameformat.NewResolver, map[string]string{"format": "{appid}.shop.example:50002"}},
		{"kubernetes (looks nothing up)", kubernetes.NewResolver, nil},
		{"sqlite", sqlite.NewResolver, map[string]string{"connectionString": "file:" + filepath.Join(b.dir, "names.db")}},
	} {
		b.peer(ctx, p.name, p.make(quiet()), p.configuration)
	}
	if alone {
		b.peer(ctx, "mdns", mdns.NewResolver(quiet()), nil)
	} else {
		b.leaveOut("mdns", errors.New("needs a network namespace of its own, so that nothing leaves this machine: unprivileged user namespaces, or root"))
	}
	if err := b.consul(ctx); err != nil {
		b.leaveOut("consul with its cache", err)
	}
	b.leaveOut("aws.cloudmap", errors.New("needs an account at AWS"))
}

// peer adds a resolver, or leaves it out when it does not start.
func (b *bench) peer(ctx context.Context, name string, r nr.Resolver, configuration any) {
	md := nr.Metadata{Instance: orders, Configuration: configuration}
	if err := r.Init(ctx, md); err != nil {
		b.leaveOut(name, fmt.Errorf("start: %w", err))
		return
	}
	b.atEnd(r.Close)
	if err := b.addPeer(ctx, name, r, nr.ResolveRequest{ID: orders.AppID, Namespace: orders.Namespace, Port: orders.DaprInternalPort}); err != nil {
		b.leaveOut(name, err)
	}
}

// addPeer adds a resolver that runs, once it answers.
func (b *bench) addPeer(ctx context.Context, name string, r nr.Resolver, req nr.ResolveRequest) error {
	if _, err := r.ResolveID(ctx, req); err != nil {
		return fmt.Errorf("the first look-up: %w", err)
	}
	b.add(name, func(_ context.Context, n int) error {
		ctx := context.Background()
		for range n {
			if _, err := r.ResolveID(ctx, req); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// cached is how fast consul answers from its cache.
const cached = 20 * time.Microsecond

func (b *bench) consul(ctx context.Context) error {
	server, err := servers.StartConsul(ctx, b.dir, servers.ConsulOptions{})
	if err != nil {
		return err
	}
	b.atEnd(server.Kill)
	r := consul.NewResolver(quiet())
	md := nr.Metadata{Instance: orders, Configuration: map[string]any{
		"client":   map[string]any{"address": server.Addr(), "scheme": "http"},
		"useCache": true,
		"advancedRegistration": map[string]any{
			"id": "orders-1", "name": orders.AppID, "address": orders.Address, "port": orders.AppPort, "meta": map[string]string{"DAPR_PORT": "50002"},
			// The cache follows health checks, so it never has an app without one.
			"check": map[string]any{"ttl": "1h", "status": "passing"},
		},
	}}
	if err := r.Init(ctx, md); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	b.atEnd(r.Close)
	req := nr.ResolveRequest{ID: orders.AppID, Namespace: orders.Namespace, Port: orders.DaprInternalPort}
	err = measure.Await(ctx, "its cache is warm", 50*time.Millisecond, func() error {
		start := time.Now()
		_, err := r.ResolveID(ctx, req)
		if err == nil && time.Since(start) > cached {
			err = errors.New("it answers too slowly for a cache")
		}
		return err
	})
	if err != nil {
		return err
	}
	return b.addPeer(ctx, "consul with its cache", r, req)
}
