package sandbox

import (
	"context"
	"crypto/rand"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bridge starts a bridge for the actors of a namespace, "isthmus actors", with its sidecar, and
// waits until the sidecar is healthy. instance tells two replicas apart; empty for the first. The
// cluster must have a placement service.
func (c *Cluster) Bridge(ctx context.Context, namespace, instance string) (*Daprd, error) {
	binary, err := Binary("isthmus")
	if err != nil {
		return nil, err
	}
	o := SidecarOptions{App: catalog.BridgeApp(namespace, c.Name), Caller: true, Instance: instance}
	configuration, err := c.Configuration(o)
	if err != nil {
		return nil, err
	}
	if o.Args, err = c.args(o); err != nil {
		return nil, err
	}
	var port int
	if err := freePorts(&port); err != nil {
		return nil, err
	}
	name := "actors-" + c.Name + "-" + namespace + instance
	return c.s.Daprd(ctx, DaprdOptions{
		Name: name, Cluster: c.Name, App: o.App, AppAddress: loopback(port), Configuration: configuration, Sentry: c.Sentry, Args: o.Args,
		Env: map[string]string{"DAPR_API_TOKEN": rand.Text()},
		Before: func(d *Daprd) ([]string, error) {
			text, err := c.BridgeConfiguration(namespace, loopback(port), d.HTTP)
			if err != nil {
				return nil, err
			}
			file, err := c.s.file(name+"-bridge.yaml", text)
			return []string{binary, "actors", "-c", file, "--"}, err
		},
	})
}

// BridgeConfiguration is the file of a bridge that listens for the sidecar with that HTTP API.
func (c *Cluster) BridgeConfiguration(namespace, listen, daprd string) ([]byte, error) {
	cfg := map[string]any{
		"cluster": c.Name, "namespace": namespace, "resolver": c.Resolver, "listen": listen, "daprd": daprd, "placement": c.placement.State,
		"identity": c.Sentry.identity(),
	}
	text, err := yaml.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("configure the bridge of cluster %s for namespace %s: %w", c.Name, namespace, err)
	}
	return text, nil
}
