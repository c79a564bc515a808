// Package component puts Isthmus into daprd: as the name-resolution component
// "isthmus" beside Dapr's own, with daprd's logger, its spans, and the Dapr resolver
// that the user has already for the apps of this cluster.
package component

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	registry "github.com/dapr/dapr/pkg/components/nameresolution"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/components/daprd/dial"
)

// Name is the component's name in a Configuration: spec.nameResolution.component.
const Name = "isthmus"

// drainTimeout bounds how long a shutdown waits for the resolver service to take
// this sidecar out of views.
const drainTimeout = 2 * time.Second

// Component makes daprd's resolvers and knows those that are in use. daprd makes a
// new one each time it loads its configuration anew.
type Component struct {
	log   *slog.Logger
	names *dial.Dialer
	app   *App                                                     // nil: none takes calls
	make  func(name, version, logName string) (nr.Resolver, error) // Dapr's own resolvers

	listen func() // starts listening to signals, once a resolver is in use

	mu   sync.Mutex
	used map[*resolver]struct{}
}

// New returns a component whose gateway names are answered by names.
func New(log *slog.Logger, names *dial.Dialer) *Component {
	return &Component{log: log, names: names, listen: func() {}, used: map[*resolver]struct{}{}}
}

// Behind says which app is behind the sidecar; nil is none that takes calls.
func (c *Component) Behind(app *App) { c.app = app }

// Register adds the component to Dapr's name resolvers. Those that are there serve as
// the local resolver of a component that runs without a service.
func (c *Component) Register(to *registry.Registry) {
	c.make = to.Create
	to.RegisterComponent(func(l logger.Logger) nr.Resolver {
		return &resolver{component: c, log: Logger(l)}
	}, Name)
}

// Drain takes this sidecar out of the views of others and returns when the resolver
// service has done so, or ctx ends. Lookups and calls go on as before.
func (c *Component) Drain(ctx context.Context) error {
	c.mu.Lock()
	used := make([]*resolver, 0, len(c.used))
	for r := range c.used {
		used = append(used, r)
	}
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
	c.used[r] = struct{}{}
	c.mu.Unlock()
	c.listen()
}

func (c *Component) remove(r *resolver) {
	c.mu.Lock()
	delete(c.used, r)
	c.mu.Unlock()
}

// local makes the Dapr resolver that answers for this cluster's own apps.
func (c *Component) local(ctx context.Context, name, version string, configuration any, self nr.Instance) (*local, error) {
	if version == "" {
		version = "v1"
	}
	if strings.EqualFold(name, Name) {
		return nil, fmt.Errorf("local resolver %q: name one of Dapr's own, such as mdns, kubernetes or consul", name)
	}
	dapr, err := c.make(name, version, name)
	if err != nil {
		return nil, fmt.Errorf("local resolver %s/%s: %w; this daprd has Dapr's own, such as mdns, kubernetes or consul", name, version, err)
	}
	md := nr.Metadata{Instance: self, Configuration: configuration}
	md.Name = name
	if err := dapr.Init(ctx, md); err != nil {
		return nil, errors.Join(fmt.Errorf("start local resolver %s/%s: %w", name, version, err), dapr.Close())
	}
	return &local{dapr: dapr}, nil
}
