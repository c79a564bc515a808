// Package component adds Isthmus to daprd as the name-resolution component "isthmus", beside Dapr's
// own. It uses daprd's logger and spans. For the apps of this cluster it can use the Dapr resolver
// that the user already has.
package component

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	registry "github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/dial"
	"github.com/isthmus-mesh/isthmus/configstore/open"
	"github.com/isthmus-mesh/isthmus/nameresolution"
)

// Name is the component's name in a Configuration: spec.nameResolution.component.
const Name = "isthmus"

// drainTimeout limits how long a shutdown waits until the resolver service has removed this sidecar
// from all views.
const drainTimeout = 2 * time.Second

// Component makes daprd's resolvers and keeps those in use. daprd makes a new one each time it
// reloads its configuration.
//
// Its fields are set before it is registered.
type Component struct {
	Self      catalog.App // the app behind the sidecar
	App       *App        // how its health is asked for; nil if no app takes calls
	PlainText bool        // calls between this sidecar and others are, since its mTLS is off
	Stores    []open.Kind // kinds of config store with a server that a sidecar can read

	log     *slog.Logger
	dialer  *dial.Dialer
	create  func(name, version, logName string) (nr.Resolver, error) // Dapr's own resolvers
	without parts                                                    // of Isthmus, in this daprd

	listenForSignals func() // called once a resolver is in use

	refusals refusals
	piped    atomic.Bool           // requests to an HTTP app pass the middleware
	untold   sync.Once             // the log says that they don't
	guard    atomic.Pointer[guard] // of the newest resolver; nil without any

	mu        sync.Mutex
	resolvers []*resolver // in use, in the order in which they were started
}

// New returns a component whose calls are made by a dialer.
func New(log *slog.Logger, dialer *dial.Dialer) *Component {
	return &Component{log: log, dialer: dialer, listenForSignals: func() {}}
}

// Register adds the component to Dapr's name resolvers. Without a resolver service the component
// uses one of the others for this cluster's apps.
func (c *Component) Register(to *registry.Registry) {
	c.create = to.Create
	to.RegisterComponent(func(l logger.Logger) nr.Resolver {
		return &resolver{component: c, log: Logger(l)}
	}, Name)
}

// Drain makes the resolver service remove this sidecar from the views of other apps. It returns
// when that is done, or when ctx ends. Lookups and calls of this sidecar continue.
func (c *Component) Drain(ctx context.Context) error {
	c.mu.Lock()
	used := slices.Clone(c.resolvers)
	c.mu.Unlock()

	errs := make([]error, len(used))
	var wg sync.WaitGroup
	for i, r := range used {
		wg.Go(func() { errs[i] = r.drain(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (c *Component) add(r *resolver) {
	c.mu.Lock()
	c.resolvers = append(c.resolvers, r)
	c.guard.Store(r.guard)
	c.mu.Unlock()
	c.listenForSignals()
}

func (c *Component) remove(r *resolver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.resolvers = slices.DeleteFunc(c.resolvers, func(other *resolver) bool { return other == r })
	if n := len(c.resolvers); n > 0 {
		c.guard.Store(c.resolvers[n-1].guard)
	} else {
		c.guard.Store(nil)
	}
}

// newest is the resolver that was started last, of those in use; nil without any.
func (c *Component) newest() *nameresolution.Resolver {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.resolvers) == 0 {
		return nil
	}
	return c.resolvers[len(c.resolvers)-1].isthmus
}

// local makes the Dapr resolver that answers for this cluster's apps.
func (c *Component) local(ctx context.Context, name, version string, configuration any, self nr.Instance) (*daprResolver, error) {
	if version == "" {
		version = "v1"
	}
	if strings.EqualFold(name, Name) {
		return nil, fmt.Errorf("local resolver %q: want one of Dapr's own, such as mdns, kubernetes or consul", name)
	}
	dapr, err := c.create(name, version, name)
	if err != nil {
		return nil, fmt.Errorf("local resolver %s/%s: %w; use one of Dapr's own, such as mdns, kubernetes or consul", name, version, err)
	}
	md := nr.Metadata{Instance: self, Configuration: configuration}
	md.Name = name
	if err := dapr.Init(ctx, md); err != nil {
		return nil, errors.Join(fmt.Errorf("start local resolver %s/%s: %w", name, version, err), dapr.Close())
	}
	return &daprResolver{dapr: dapr}, nil
}
