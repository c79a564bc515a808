package sandbox

import (
	"context"
	"fmt"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Bridge starts a bridge for the actors of a namespace, "isthmus actors", with its sidecar, and waits
// until the sidecar is healthy. instance tells two replicas apart; empty for the first. The cluster
// must have a placement service.
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
		Before: func(d *Daprd) ([]string, error) {
			text, err := yaml.Marshal(c.bridge(d, namespace, loopback(port)))
			if err != nil {
				return nil, fmt.Errorf("configure %s: %w", name, err)
			}
			file, err := c.s.file(name+"-bridge.yaml", text)
			return []string{binary, "actors", "-c", file, "--"}, err
		},
	})
}

// bridge is the configuration of a bridge.
func (c *Cluster) bridge(d *Daprd, namespace, listen string) map[string]any {
	cfg := map[string]any{
		"cluster": c.Name, "namespace": namespace, "resolver": c.Resolver, "listen": listen, "daprd": d.HTTP, "placement": c.placement.State,
		"identity": map[string]any{"insecure": true},
	}
	if c.Sentry != nil {
		cfg["identity"] = map[string]any{"sentry": map[string]any{
			"address": c.Sentry.Address, "trustAnchorsFile": c.Sentry.AnchorsFile, "trustDomain": c.Sentry.TrustDomain,
			"appTrustDomain": c.Sentry.appTrustDomain(),
		}}
	}
	return cfg
}
