// Package guests is host to guests: clusters such as a developer's laptop that join for a while. It has
// this cluster's Sentry sign their certificates, tells them what they have here, and removes their
// Cluster objects when they end.
package guests

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

// Settings are of the configuration.
type Settings struct {
	// Key is a file with the key that signs tokens for Sentry's JWKS validator, in PEM.
	Key string `yaml:"key" file:""`
}

// Objects reads and deletes objects of this cluster, as the service Objects does.
type Objects interface {
	Get(context.Context, *v1alpha1.GetRequest) (*v1alpha1.GetResponse, error)
	Delete(context.Context, *v1alpha1.DeleteRequest) (*v1alpha1.ApplyResponse, error)
}

// Config is what a Server needs of its service. All may be used by many at once.
type Config struct {
	Settings
	Namespace string // of Isthmus' own apps
	Identity  *identity.Source
	Objects   Objects
	Topology  *topology.Topology
	Clusters  *live.Value[[]*catalog.Cluster]
	Log       *slog.Logger
}

// Server is the service Guests.
type Server struct {
	v1alpha1.UnimplementedGuestsServer
	cfg Config

	mu       sync.Mutex
	limiters map[string]*rate.Limiter // of the guests that have asked, until they end
}

// What one guest may ask for.
const (
	askEvery = 200 * time.Millisecond
	askBurst = 20
)

// New makes a server.
func New(cfg Config) *Server { return &Server{cfg: cfg, limiters: map[string]*rate.Limiter{}} }

// MayCertify is why no certificate can be signed for a guest; nil if it can.
func (s *Server) MayCertify() error {
	switch {
	case !s.cfg.Identity.HasSentry():
		return identity.ErrSignsNothing
	case s.cfg.Key == "" && s.cfg.Identity.HasToken():
		return errors.New("no certificates for guests: Sentry wants a token here, and that of this service is for itself alone: set guests.key, and give Sentry its public half, see docs/how-to/laptop.md")
	}
	return nil
}

// Certify has Sentry sign a request of a guest's resolver service.
func (s *Server) Certify(ctx context.Context, guest *catalog.Cluster, csr []byte) ([]byte, error) {
	return s.sign(ctx, guest, identity.ServiceApp(s.cfg.Namespace, guest.Name), csr)
}

func (s *Server) sign(ctx context.Context, guest *catalog.Cluster, app catalog.App, csr []byte) ([]byte, error) {
	_, own, err := s.cfg.Identity.Authority()
	if err != nil {
		return nil, err
	}
	if !identity.IsGuestDomain(own, guest.Trust.Domain) {
		return nil, fmt.Errorf("spec.trust.domain %q of Cluster %s is not the one of a guest of this cluster; invite it: isthmus dev invite", guest.Trust.Domain, guest.Name)
	}
	var token func(audience, subject string) (string, error)
	if s.cfg.Key != "" {
		key, err := ReadKey(s.cfg.Key)
		if err != nil {
			return nil, err
		}
		token = key.token
	}
	return s.cfg.Identity.Sign(ctx, identity.ID{TrustDomain: guest.Trust.Domain, App: app}, csr, token)
}

// caller is the guest that calls.
func (s *Server) caller(ctx context.Context) (*catalog.Cluster, error) {
	name, _ := identity.FromPeer(ctx)
	all, known := s.cfg.Clusters.Load()
	if !known {
		return nil, status.Error(codes.Unavailable, "the resolver service has not read its config store yet")
	}
	for _, c := range all {
		if c.Name == name && c.Guest != nil && time.Now().Before(c.Guest.Until) {
			if !s.limiter(name).Allow() {
				return nil, status.Errorf(codes.ResourceExhausted, "guest %s asks too often", name)
			}
			return c, nil
		}
	}
	return nil, status.Errorf(codes.FailedPrecondition, "cluster %s is no guest here, or no longer one: its time is over, or an operator has deleted its Cluster object", name)
}

func (s *Server) limiter(guest string) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.limiters[guest]
	if l == nil {
		l = rate.NewLimiter(rate.Every(askEvery), askBurst)
		s.limiters[guest] = l
	}
	return l
}

// app is one that the guest may run.
func app(guest *catalog.Cluster, m *v1alpha1.App) (catalog.App, error) {
	if named := wire.AppOf(m); slices.Contains(guest.Guest.Apps, named) {
		return named, nil
	}
	return catalog.App{}, status.Errorf(codes.PermissionDenied, "guest %s may run %v, and nothing else", guest.Name, guest.Guest.Apps)
}

// Sign has Sentry sign a request of the guest that calls.
func (s *Server) Sign(ctx context.Context, req *v1alpha1.SignRequest) (*v1alpha1.SignResponse, error) {
	guest, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	named := identity.ServiceApp(s.cfg.Namespace, guest.Name)
	if req.GetApp() != nil {
		if named, err = app(guest, req.GetApp()); err != nil {
			s.cfg.Log.Warn("a guest wants a certificate of an app that it may not run", "peer", guest.Name, "app", catalog.Printable(catalog.Clip(wire.AppOf(req.GetApp()).String(), 200)))
			return nil, err
		}
	}
	text, err := s.sign(ctx, guest, named, req.GetCsr())
	if err != nil {
		s.cfg.Log.Warn("no certificate for a guest", "peer", guest.Name, "app", named.String(), "err", err)
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	s.cfg.Log.Info("certificate for a guest", "peer", guest.Name, "app", named.String())
	return &v1alpha1.SignResponse{Certificate: text}, nil
}

// Show tells a guest what it has here.
func (s *Server) Show(ctx context.Context, req *v1alpha1.ShowGuestRequest) (*v1alpha1.ShowGuestResponse, error) {
	guest, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	named, err := app(guest, req.GetApp())
	if err != nil {
		return nil, err
	}
	by := s.cfg.Topology.Subscribe(named)
	defer by.Close()
	view, err := by.Next(ctx, nil)
	if err != nil {
		return nil, status.FromContextError(err).Err()
	}
	answer := &v1alpha1.ShowGuestResponse{Guest: api.ToProto(guest).(*v1alpha1.Cluster).GetSpec().GetGuest()}
	for name, e := range view.Entries.All() {
		if e.App == named {
			continue
		}
		callee := &v1alpha1.GuestCallee{App: wire.App(e.App)}
		if name != e.App {
			callee.As = name.ID
		}
		answer.Callees = append(answer.Callees, callee)
	}
	return answer, nil
}

// Leave removes the Cluster object of the guest that calls.
func (s *Server) Leave(ctx context.Context, _ *v1alpha1.LeaveRequest) (*v1alpha1.LeaveResponse, error) {
	guest, err := s.caller(ctx)
	if err == nil {
		err = s.remove(context.WithoutCancel(ctx), guest, "it has left")
	}
	return &v1alpha1.LeaveResponse{}, err
}

// removeWithin is how long the removal of an object may take.
const removeWithin = 30 * time.Second

func (s *Server) remove(ctx context.Context, guest *catalog.Cluster, why string) error {
	ctx, cancel := context.WithTimeout(ctx, removeWithin)
	defer cancel()
	key := &v1alpha1.ObjectKey{Kind: string(catalog.KindCluster), Name: guest.Name}
	got, err := s.cfg.Objects.Get(ctx, &v1alpha1.GetRequest{Key: key})
	if err != nil || len(got.GetObjects()) != 1 {
		return err
	}
	stored := got.GetObjects()[0]
	object, err := api.DecodeJSON(api.KeyPath(guest.Key()), stored.GetJson())
	if err != nil {
		return err
	}
	if now := object.(*catalog.Cluster).Guest; now == nil || !now.Until.Equal(guest.Guest.Until) {
		return nil // it is another by now
	}
	_, err = s.cfg.Objects.Delete(ctx, &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{key}, IfRevisions: []string{stored.GetRevision()}})
	if err == nil {
		s.cfg.Log.Info("guest ended", "peer", guest.Name, "why", why)
	}
	return err
}

// tryAgain is the pause after a removal that has failed.
const tryAgain = 10 * time.Second

// forget forgets the guests that have ended.
func (s *Server) forget(all []*catalog.Cluster) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.limiters, func(name string, _ *rate.Limiter) bool {
		return !slices.ContainsFunc(all, func(c *catalog.Cluster) bool { return c.Name == name && c.Guest != nil })
	})
}

// Run removes guests whose time is over, until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	for {
		all, _, changed := s.cfg.Clusters.Follow()
		s.forget(all)
		next := time.Hour
		for _, c := range all {
			if c.Guest == nil {
				continue
			}
			left := time.Until(c.Guest.Until)
			if left <= 0 {
				left = tryAgain
				if err := s.remove(ctx, c, "its time is over"); err != nil && status.Code(err) != codes.NotFound && ctx.Err() == nil {
					s.cfg.Log.Warn("the Cluster object of a guest whose time is over can't be removed; it counts no more, and is tried again", "peer", c.Name, "err", err)
				}
			}
			next = min(next, left)
		}
		select {
		case <-changed:
		case <-time.After(next):
		case <-ctx.Done():
			return nil
		}
	}
}
