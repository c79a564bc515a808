package invitation

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// describe is what this cluster says of itself.
func (s *Server) describe(o *v1alpha1.LinkOptions) (*v1alpha1.MeetDescription, error) {
	if s.cfg.Identity.Insecure() {
		return nil, refuse(Insecure, "")
	}
	roots, domain, err := s.cfg.Identity.Authority()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	d := &v1alpha1.MeetDescription{Cluster: s.cfg.Cluster, Domain: string(s.cfg.Domain), TrustDomain: domain, Roots: string(roots), AppTrustDomain: s.cfg.AppDomain}
	d.DialsOut = o.GetDialOut()
	if o.GetNoGateway() || d.DialsOut {
		return d, nil
	}
	gateways := o.GetGateways()
	if len(gateways) == 0 {
		gateways = s.cfg.Gateways
	}
	if len(gateways) == 0 || len(gateways) > maxGateways {
		return nil, refuse(NoGateway, "")
	}
	for _, g := range gateways {
		address, err := catalog.CheckGateway(g)
		if err != nil {
			return nil, refuse(NoGateway, err.Error())
		}
		d.Gateways = append(d.Gateways, address)
	}
	return d, nil
}

// fingerprints are the SHA-256 of each certificate in PEM.
func fingerprints(roots string) (all [][]byte, err error) {
	for rest := []byte(roots); len(bytes.TrimSpace(rest)) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("the roots are no PEM")
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return nil, errors.New("a root is no certificate")
		}
		all = append(all, fingerprint(block.Bytes))
	}
	if len(all) == 0 || len(all) > maxRoots {
		return nil, fmt.Errorf("%d roots; want 1 to %d", len(all), maxRoots)
	}
	slices.SortFunc(all, slices.Compare)
	return all, nil
}

// trustOf is how a cluster that describes itself is believed.
func trustOf(d *v1alpha1.MeetDescription) catalog.Trust {
	return catalog.Trust{Domain: d.GetTrustDomain(), Roots: d.GetRoots()}
}

// target is a Cluster object that is about to be written.
type target struct {
	object    *catalog.Cluster
	revision  string // that the store has; [configstore.Absent] for none
	unchanged bool
}

// clusterOf is the object for a cluster that describes itself. Clusters that share an authority
// need no roots in it.
func (s *Server) clusterOf(d *v1alpha1.MeetDescription, o *v1alpha1.LinkOptions) (*catalog.Cluster, error) {
	c := &catalog.Cluster{
		Name: d.GetCluster(), Gateways: d.GetGateways(), Trust: trustOf(d),
		StaleAfter: catalog.DefaultStaleAfter, RampUp: catalog.DefaultRampUp,
	}
	switch {
	case o.GetDialOut():
		c.Tunnel = catalog.TunnelDial
	case d.GetDialsOut():
		c.Tunnel, c.Gateways = catalog.TunnelAccept, nil
	}
	own, _, err := s.cfg.Identity.Authority()
	if err != nil {
		return nil, err
	}
	mine, err := fingerprints(string(own))
	if err != nil {
		return nil, err
	}
	if theirs, err := fingerprints(d.GetRoots()); err == nil && slices.EqualFunc(mine, theirs, bytes.Equal) {
		c.Trust.Roots = ""
	}
	object, err := api.DecodeJSON(api.KeyPath(c.Key()), api.EncodeJSON(c)) // holds it to the rules of every object
	if err != nil {
		return nil, refuse(Protocol, catalog.Printable(err.Error()))
	}
	return object.(*catalog.Cluster), nil
}

// prepare compares the object with the store, and tries it out. It writes nothing.
func (s *Server) prepare(ctx context.Context, d *v1alpha1.MeetDescription, o *v1alpha1.LinkOptions) (*target, error) {
	c, err := s.clusterOf(d, o)
	if err != nil {
		return nil, err
	}
	t := &target{object: c, revision: configstore.Absent}
	if o.GetOut() {
		return t, nil
	}
	return t, s.try(ctx, t, func(held *v1alpha1.StoredObject) error { return t.over(held, o.GetReplace()) })
}

// try tries an object out, after over has compared it with one that is there.
func (s *Server) try(ctx context.Context, t *target, over func(*v1alpha1.StoredObject) error) error {
	got, err := s.cfg.Objects.Get(ctx, &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: string(catalog.KindCluster), Name: t.object.Name}})
	switch {
	case status.Code(err) == codes.NotFound:
	case err != nil:
		return refuse(Store, err.Error())
	case len(got.GetObjects()) == 1:
		if err := over(got.GetObjects()[0]); err != nil || t.unchanged {
			return err
		}
	}
	if _, err := s.apply(ctx, t, true); err != nil {
		return refuse(Store, status.Convert(err).Message())
	}
	return nil
}

// held is the Cluster object of that name.
func (s *Server) held(ctx context.Context, name string) (*catalog.Cluster, error) {
	got, err := s.cfg.Objects.Get(ctx, &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: string(catalog.KindCluster), Name: name}})
	if err != nil {
		return nil, err
	}
	for _, stored := range got.GetObjects() {
		if object, err := api.DecodeJSON(api.KeyPath(catalog.Key{Kind: catalog.KindCluster, Name: name}), stored.GetJson()); err == nil {
			return object.(*catalog.Cluster), nil
		}
	}
	return nil, status.Errorf(codes.NotFound, "Cluster %s can't be read; see isthmus status", name)
}

// over compares with the object that is there. One that is replaced keeps what a link says
// nothing of, such as staleAfter.
func (t *target) over(stored *v1alpha1.StoredObject, replace bool) error {
	object, err := api.DecodeJSON(api.KeyPath(t.object.Key()), stored.GetJson())
	if err != nil {
		return refuse(Exists, "the one that is there can't be read")
	}
	held := object.(*catalog.Cluster)
	t.revision = stored.GetRevision()
	t.object.Trust.AppDomain = held.Trust.AppDomain
	if t.object.Trust.Roots != "" {
		t.object.Trust.Rotation = held.Trust.Rotation
	}
	if slices.Equal(held.Gateways, t.object.Gateways) && held.Trust == t.object.Trust && held.Tunnel == t.object.Tunnel {
		t.unchanged, t.object = true, held
		return nil
	}
	if !replace {
		return refuse(Exists, "Cluster "+held.Name)
	}
	next := *held
	next.Gateways, next.Trust, next.Tunnel = t.object.Gateways, t.object.Trust, t.object.Tunnel
	if next.Tunnel == catalog.TunnelAccept {
		next.AppGateways = nil
	}
	t.object = &next
	return nil
}

func (s *Server) apply(ctx context.Context, t *target, dryRun bool) (*v1alpha1.ApplyResponse, error) {
	return s.cfg.Objects.Apply(ctx, &v1alpha1.ApplyRequest{
		DryRun: dryRun, Objects: []*v1alpha1.ApplyObject{{Json: api.EncodeJSON(t.object), IfRevision: t.revision}},
	})
}

// told is the result of an object that is given out, and not written.
const told = "told"

// write writes the object, unless it is to be told only. It returns what became of it.
func (s *Server) write(ctx context.Context, t *target, o *v1alpha1.LinkOptions) (string, error) {
	switch {
	case o.GetOut():
		return told, nil
	case t.unchanged:
		return "unchanged", nil
	}
	answer, err := s.apply(ctx, t, false)
	if err != nil {
		return "", refuse(Store, status.Convert(err).Message())
	}
	return answer.GetResults()[0].GetResult(), nil
}

// mayWrite refuses to begin what could not be written at its end.
func (s *Server) mayWrite(ctx context.Context, o *v1alpha1.LinkOptions) error {
	if o.GetOut() {
		return nil
	}
	err := s.cfg.MayWrite(ctx)
	if errors.Is(err, configstore.ErrDenied) || errors.Is(err, configstore.ErrReadOnly) {
		return refuse(ReadOnly, err.Error())
	}
	return nil
}
