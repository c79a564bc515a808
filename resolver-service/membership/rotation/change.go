package rotation

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Why roots are not taken, beside the words of [identity.RootsRefusal].
const (
	NoConsent = "no-consent"  // the Cluster object does not say spec.trust.rotation: accept
	Shared    = "shared"      // the Cluster object names no roots: this cluster's own count
	OwnRoot   = "own-root"    // a new one is among this cluster's own
	Often     = "often"       // too many changes
	Store     = "store"       // the object was not written
	Other     = "not-current" // another set is announced by now
)

// applyWithin is how long the store may take.
const applyWithin = 20 * time.Second

// take judges what a peer announces, and takes it over.
func (s *Server) take(ctx context.Context, c *catalog.Cluster, a *announcement) {
	done, err := s.judge(c, a, false)
	if err == nil && !done.same() {
		done, err = s.replace(ctx, c.Name, a, false)
	}
	var refused *identity.RootsRefusal
	switch {
	case errors.As(err, &refused):
		// The peer may have a newer certificate than the connection has shown.
		if refused.Word == identity.RootsUnproven && a.anew.Allow() {
			s.cfg.Reconnect(c.Name)
		}
		if s.judged(c.Name, a.roots, refused.Word) && refused.Word != Shared {
			s.often.Warn(c.Name+" refused", "roots that a peer announces for itself are not taken", "peer", c.Name, "reason", refused.Word, "why", refused.What)
		}
	case err != nil:
		if s.judged(c.Name, a.roots, Store) {
			s.often.Warn(c.Name+" store", "roots that a peer announces for itself could not be written; trying again", "peer", c.Name, "err", status.Convert(err).Message())
		}
	default:
		s.judged(c.Name, a.roots, "")
		if !done.same() {
			s.cfg.Log.Info("roots of a peer replaced by those that it announces", "peer", c.Name, "by", nameOf(a.by), "added", done.Added, "removed", done.Removed)
		}
	}
}

// change is a succession that may be.
type change struct{ *identity.RootsSuccession }

func (c change) same() bool { return len(c.Added)+len(c.Removed) == 0 }

func (c change) wire() *v1alpha1.RootsChange {
	return &v1alpha1.RootsChange{Added: c.Added, Removed: c.Removed}
}

// judge tells what the roots that a peer announces change in its object, or why they don't. An
// operator who asks for it has looked at them, and consents for this once.
func (s *Server) judge(c *catalog.Cluster, a *announcement, asked bool) (change, error) {
	if c.Trust.Roots == "" {
		return change{}, refuse(Shared, "Cluster %s names no roots, so those of this cluster count; change them in Dapr's Sentry here", c.Name)
	}
	succession := identity.Succession{Old: c.Trust.Roots, Next: a.roots, Chain: a.by, Taken: s.taken(c.Name), At: time.Now()}
	roots, err := succession.Check()
	done := change{roots}
	if err != nil || done.same() || asked {
		return done, err
	}
	if c.Trust.Rotation != catalog.RotationAccept {
		return done, refuse(NoConsent, "Cluster %s does not say spec.trust.rotation: accept; compare the fingerprints over another channel, and run: isthmus trust accept %[1]s", c.Name)
	}
	// It may be this cluster's next root, which must not become another's.
	for _, own := range s.ownRoots() {
		if slices.Contains(done.Added, identity.Fingerprint(own)) {
			return done, refuse(OwnRoot, "one of them is among this cluster's own trust anchors; if it is not this cluster's, run: isthmus trust accept %s", c.Name)
		}
	}
	return done, nil
}

// replace judges an announcement by the object in the store, and writes that.
func (s *Server) replace(ctx context.Context, cluster string, a *announcement, asked bool) (change, error) {
	held, revision, err := s.held(ctx, cluster)
	if err != nil {
		return change{}, err
	}
	done, err := s.judge(held, a, asked)
	if err != nil || done.same() {
		return done, err
	}
	if !asked {
		if !a.limit.Allow() {
			return done, refuse(Often, "it has changed them %d times lately; one more change is taken each minute", changesAtOnce)
		}
		ctx = identity.WithPerson(ctx, "cluster "+cluster+", "+nameOf(a.by))
	}
	next := *held
	next.Trust.Roots = done.Roots
	return done, s.write(ctx, &next, revision)
}

// taken are the roots of all clusters but one, and those by which this one signs or will. Roots that
// others introduce count for the introduced alone, and so are not taken from anybody.
func (s *Server) taken(but string) (all []*x509.Certificate) {
	clusters, _ := s.cfg.Clusters.Load()
	for _, c := range clusters {
		if c.Name != but && c.IntroducedBy == "" {
			all = append(all, s.rootsOf(c)...)
		}
	}
	if but != s.cfg.Cluster {
		if own, _, err := s.cfg.Identity.Authority(); err == nil {
			all = append(all, identity.RootsIn(string(own))...)
		}
	}
	return all
}

// held is the Cluster object of that name in the store, and its revision.
func (s *Server) held(ctx context.Context, name string) (*catalog.Cluster, string, error) {
	key := catalog.Key{Kind: catalog.KindCluster, Name: name}
	got, err := s.cfg.Objects.Get(ctx, &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: string(key.Kind), Name: name}})
	if err != nil {
		return nil, "", err
	}
	for _, stored := range got.GetObjects() {
		if object, err := api.DecodeJSON(api.KeyPath(key), stored.GetJson()); err == nil {
			return object.(*catalog.Cluster), stored.GetRevision(), nil
		}
	}
	return nil, "", status.Errorf(codes.FailedPrecondition, "%s can't be read; see isthmus status", key)
}

func (s *Server) write(ctx context.Context, c *catalog.Cluster, revision string) error {
	ctx, cancel := context.WithTimeout(ctx, applyWithin)
	defer cancel()
	_, err := s.cfg.Objects.Apply(ctx, &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{{Json: api.EncodeJSON(c), IfRevision: revision}}})
	return err
}

// Announce has peers told which roots this cluster's certificates chain to.
func (s *Server) Announce(ctx context.Context, req *v1alpha1.AnnounceRootsRequest) (*v1alpha1.RootsChange, error) {
	own, _, err := s.cfg.Identity.Authority()
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	held, revision, err := s.held(ctx, s.cfg.Cluster)
	switch {
	case status.Code(err) == codes.NotFound:
		held, revision = &catalog.Cluster{Name: s.cfg.Cluster, StaleAfter: catalog.DefaultStaleAfter, RampUp: catalog.DefaultRampUp}, configstore.Absent
	case err != nil:
		return nil, err
	}
	old := held.Trust.Roots
	if old == "" {
		old = string(own)
	}
	succession := identity.Succession{Old: old, Next: req.GetRoots(), Chain: s.cfg.Identity.OwnChain(), Taken: s.taken(s.cfg.Cluster), At: time.Now()}
	roots, err := succession.Check()
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	done, next := change{roots}, *held
	if next.Trust.Roots = done.Roots; next.Trust == held.Trust {
		return done.wire(), nil
	}
	if err := s.write(ctx, &next, revision); err != nil {
		return nil, err
	}
	s.cfg.Log.Info("other roots announced to peers", "by", identity.Caller(ctx), "added", done.Added, "removed", done.Removed)
	return done.wire(), nil
}

// Accept replaces the roots of a peer by those that it announces for itself.
func (s *Server) Accept(ctx context.Context, req *v1alpha1.AcceptRootsRequest) (*v1alpha1.RootsChange, error) {
	a, ok := s.announced(req.GetCluster())
	if !ok {
		return nil, status.Errorf(codes.NotFound, "cluster %s announces no roots to this replica; see isthmus trust accept %[1]s", req.GetCluster())
	}
	names := fingerprints(identity.RootsIn(a.roots))
	asked := slices.Clone(req.GetRoots())
	slices.Sort(names)
	slices.Sort(asked)
	if !slices.Equal(names, asked) {
		return nil, status.Error(codes.FailedPrecondition, refuse(Other, "cluster %s announces other roots by now; look at them again: isthmus trust accept %[1]s", req.GetCluster()).Error())
	}
	done, err := s.replace(ctx, req.GetCluster(), &a, true)
	var refused *identity.RootsRefusal
	switch {
	case errors.As(err, &refused):
		return nil, status.Error(codes.FailedPrecondition, refused.Error())
	case err != nil:
		return nil, err
	}
	s.judged(req.GetCluster(), a.roots, "")
	s.cfg.Log.Info("roots of a peer replaced by those that it announces", "peer", req.GetCluster(), "by", identity.Caller(ctx), "added", done.Added, "removed", done.Removed)
	return done.wire(), nil
}

// perMessage is how many sidecars one message has.
const perMessage = 500

// Show tells which roots this cluster, its sidecars and its peers trust.
func (s *Server) Show(req *v1alpha1.ShowRotationRequest, to grpc.ServerStreamingServer[v1alpha1.ShowRotationResponse]) error {
	own, err := s.show()
	if err != nil {
		return err
	}
	all := []*v1alpha1.ShowRotationResponse{own}
	for some := range slices.Chunk(s.cfg.Sidecars(), perMessage) {
		all = append(all, &v1alpha1.ShowRotationResponse{Sidecars: some})
	}
	if req.GetForReplica() == "" {
		others, missing := s.cfg.Others(to.Context())
		own.Missing = missing
		all = append(all, others...)
	}
	for _, m := range all {
		if err := to.Send(m); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) show() (*v1alpha1.ShowRotationResponse, error) {
	if s.cfg.Identity.Insecure() {
		return nil, status.Error(codes.FailedPrecondition, "this service has identity: insecure, so it has no roots; give it an identity")
	}
	own, err := s.cfg.Identity.Anchors()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	m := &v1alpha1.ShowRotationResponse{
		Cluster: s.cfg.Cluster, Replica: s.cfg.Replica, Run: s.cfg.Run, Roots: string(own), Signing: s.cfg.Identity.Vouching(), Announced: s.announces.Load().GetRoots(), SentryNamespace: s.cfg.Sentry,
	}
	reports := s.cfg.Reports()
	clusters, _ := s.cfg.Clusters.Load()
	for _, c := range clusters {
		if c.Name == s.cfg.Cluster || c.Guest != nil { // a guest has this cluster's authority, for hours
			continue
		}
		p := &v1alpha1.PeerRotation{Cluster: c.Name, Reports: reports[c.Name], Roots: c.Trust.Roots}
		if a, ok := s.announced(c.Name); ok {
			if p.Refused = a.refused; len(identity.RootsIn(a.roots)) > 0 { // it may be a key
				p.Announced = a.roots
			}
		}
		m.Peers = append(m.Peers, p)
	}
	return m, nil
}

func refuse(word, format string, args ...any) *identity.RootsRefusal {
	return &identity.RootsRefusal{Word: word, What: fmt.Sprintf(format, args...)}
}

// nameOf is the SPIFFE ID of a certificate that was verified.
func nameOf(chain []*x509.Certificate) string {
	if len(chain) == 0 || len(chain[0].URIs) == 0 {
		return "without a certificate"
	}
	return catalog.Printable(chain[0].URIs[0].String())
}
