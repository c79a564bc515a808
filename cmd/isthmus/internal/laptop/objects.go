package laptop

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// lookEvery is how often the guest asks what it has at the host.
const lookEvery = 2 * time.Second

func (g *guest) socket() string { return filepath.Join(g.dir, "operator.sock") }

// configuration is that of the service on this machine, which listens on loopback alone. Its guard lets in the
// calls that are taken.
func (g *guest) configuration() []byte {
	text, _ := yaml.Marshal(map[string]any{ // of strings and maps, which never fails
		"cluster": g.name, "domain": g.offer.GetDomain(), "dataDir": filepath.Join(g.dir, "data"), "defaultSelection": "none", "guard": "enforce",
		"store":       map[string]any{"embedded": map[string]any{"path": filepath.Join(g.dir, "data", "guest.db")}},
		"listen":      map[string]any{"resolver": loopback, "operator": "unix://" + g.socket()},
		"identity":    map[string]any{"namespace": g.offer.GetGuest().GetNamespace(), "sentry": map[string]any{"address": g.offer.GetGateways()[0], "trustAnchors": g.roots}},
		"development": map[string]any{"loopback": true},
	})
	return text
}

// follow asks the host what the guest has there, and has the objects here say the same.
func (g *guest) follow(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	has, err := g.calls.Show(ctx, &v1alpha1.ShowGuestRequest{App: wire.App(g.app)})
	if err != nil {
		return err
	}
	if g.until, err = time.Parse(time.RFC3339, has.GetGuest().GetUntil()); err != nil {
		return err
	}
	shown := has.String()
	if shown == g.shown {
		return nil
	}
	if err = g.apply(ctx, g.objectsOf(has)...); err == nil {
		g.shown = shown
	}
	return err
}

func (g *guest) apply(ctx context.Context, all ...proto.Message) error {
	req := &v1alpha1.ApplyRequest{}
	for _, m := range all {
		text, err := protojson.Marshal(m)
		if err != nil {
			return err
		}
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: text})
	}
	if _, err := g.objects.Apply(ctx, req, grpc.WaitForReady(true)); err != nil {
		return fmt.Errorf("write the objects of this guest: %v", err) // whose code says nothing of the host
	}
	return nil
}

// settleWithin is how long the host may take to know its new guest everywhere.
const settleWithin = 20 * time.Second

// settle is the first follow. The host is believed here once it has an object.
func (g *guest) settle(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, settleWithin)
	defer cancel()
	for {
		if err = g.apply(ctx, g.cluster()); err == nil { // the service has read its store
			err = g.follow(ctx)
		}
		if err == nil || !live.Sleep(ctx, 100*time.Millisecond) {
			return err
		}
	}
}

// cluster is the object of the host, by its own roots, which are all that count here.
func (g *guest) cluster() *v1alpha1.Cluster {
	c := &v1alpha1.Cluster{
		ApiVersion: catalog.Version, Kind: string(catalog.KindCluster), Metadata: &v1alpha1.Metadata{Name: g.host.GetCluster()},
		Spec: &v1alpha1.ClusterSpec{Tunnel: catalog.TunnelDial, Trust: &v1alpha1.Trust{Domain: g.host.GetTrustDomain(), AppDomain: g.host.GetAppTrustDomain()}},
	}
	for _, address := range g.host.GetGateways() {
		c.Spec.Gateways = append(c.Spec.Gateways, &v1alpha1.Gateway{Address: address})
	}
	return c
}

// objectsOf are what the app may call at the host, and who may call the app.
func (g *guest) objectsOf(has *v1alpha1.ShowGuestResponse) []proto.Message {
	host := g.host.GetCluster()
	own := func() *v1alpha1.Metadata { return &v1alpha1.Metadata{Namespace: g.app.Namespace, Name: g.app.ID} }
	calls := &v1alpha1.AppEndpoints{ApiVersion: catalog.Version, Kind: string(catalog.KindAppEndpoints), Metadata: own(), Spec: &v1alpha1.AppEndpointsSpec{}}
	for _, c := range has.GetCallees() {
		calls.Spec.Endpoints = append(calls.Spec.Endpoints, &v1alpha1.Endpoint{
			App: c.GetApp().GetId(), Namespace: c.GetApp().GetNamespace(), As: c.GetAs(), Routes: []*v1alpha1.Route{{Cluster: host}},
		})
	}
	takes := &v1alpha1.AppExport{ApiVersion: catalog.Version, Kind: string(catalog.KindAppExport), Metadata: own(), Spec: &v1alpha1.AppExportSpec{}}
	for _, t := range has.GetGuest().GetTakes() {
		allow := &v1alpha1.Allow{Cluster: host}
		if caller, err := catalog.ParseApp(t.GetCaller()); err == nil {
			allow.Namespace, allow.App = caller.Namespace, caller.ID
		}
		same := func(a *v1alpha1.Allow) bool { return proto.Equal(a, allow) }
		if t.GetApp() == g.app.String() && !slices.ContainsFunc(takes.Spec.Allow, same) {
			takes.Spec.Allow = append(takes.Spec.Allow, allow)
		}
	}
	return []proto.Message{calls, takes}
}
