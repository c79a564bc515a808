package invitation

import (
	"context"
	"encoding/hex"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
)

// Objects reads and writes the objects of this cluster, as the service Objects does.
type Objects interface {
	Get(context.Context, *v1alpha1.GetRequest) (*v1alpha1.GetResponse, error)
	Apply(context.Context, *v1alpha1.ApplyRequest) (*v1alpha1.ApplyResponse, error)
}

// Config is this cluster, and what links need of its service. All functions may be called by many
// at once.
type Config struct {
	Cluster   string
	Namespace string // of Isthmus' own apps
	Domain    catalog.Domain
	Replica   string   // this one's name; empty where there is one service
	Gateways  []string // where other clusters reach the gateway, as far as the configuration says
	Identity  *identity.Source
	Objects   Objects
	// MayWrite is the error of a store that can't be written.
	MayWrite func(context.Context) error
	// Lacking are the apps with sidecars that lack one of the roots, by their fingerprints in
	// hexadecimal digits, or do not say; and the namespace of Dapr's control plane.
	Lacking func(ctx context.Context, roots map[string][]string) map[string][]*v1alpha1.LackingApp
	Sentry  string
	// MayCertify is why no certificate can be signed for a guest, and Certify has one signed for the
	// service of a guest.
	MayCertify func() error
	Certify    func(ctx context.Context, guest *catalog.Cluster, csr []byte) ([]byte, error)
	AppDomain  string // trust domain of this cluster's apps, where it is not the service's
	// Dial connects to a gateway; nil: by TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	Now  func() time.Time // nil: this machine's clock
	Log  *slog.Logger
}

// Limits of time. Tests have shorter ones.
type limits struct {
	proof   time.Duration // from the connection until an accepter has proved itself
	confirm time.Duration // for a person to compare the words
	write   time.Duration // for a side to write
	search  time.Duration // for the replica with the invitation
}

var defaultLimits = limits{proof: 10 * time.Second, confirm: 5 * time.Minute, write: 40 * time.Second, search: 20 * time.Second}

// maxMeetings is how many meetings there are at a time before they have proved anything.
const maxMeetings = 16

// How long an invitation lasts.
const (
	defaultExpiry = 15 * time.Minute
	longestExpiry = 24 * time.Hour
)

// Server is the services Link, for operators, and Linking, for the other cluster's service.
type Server struct {
	v1alpha1.UnimplementedLinkServer
	v1alpha1.UnimplementedLinkingServer
	cfg         Config
	limits      limits
	invitations *invitations
	often       *throttle.Log // for lines that strangers cause
	places      chan struct{} // of meetings

	mu       sync.Mutex
	accepted map[string]chan bool // by ID: acceptances that wait for their person
}

// New makes a server.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Dial == nil {
		cfg.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}
	}
	return &Server{
		cfg: cfg, limits: defaultLimits, invitations: newInvitations(cfg.Now), often: throttle.New(cfg.Log, throttle.Interval),
		places: make(chan struct{}, maxMeetings), accepted: map[string]chan bool{},
	}
}

// Open tells whether the gateway is to lead the reserved name here. Any goroutine calls it.
func (s *Server) Open() bool { return s.invitations.open() }

// Invite opens an invitation.
func (s *Server) Invite(ctx context.Context, req *v1alpha1.InviteRequest) (*v1alpha1.InviteResponse, error) {
	if err := catalog.CheckCluster(req.GetCluster()); err != nil {
		return nil, refuse(WrongName, err.Error())
	}
	if req.GetCluster() == s.cfg.Cluster {
		return nil, refuse(OwnCluster, "")
	}
	if err := s.mayHost(req.GetCluster(), req.GetGuest()); err != nil {
		return nil, err
	}
	d, err := s.describe(req.GetOptions())
	if err != nil {
		return nil, err
	}
	if len(d.GetGateways()) == 0 {
		return nil, refuse(NoGateway, "the other cluster has to reach this one to accept")
	}
	if err := s.mayWrite(ctx, req.GetOptions()); err != nil {
		return nil, err
	}
	roots, err := fingerprints(d.GetRoots())
	if err != nil {
		return nil, refuse(Insecure, err.Error())
	}
	lasts := time.Duration(req.GetExpiresS()) * time.Second
	if lasts <= 0 {
		lasts = defaultExpiry
	}
	i, err := newInvitation(&v1alpha1.Invitation{
		Cluster: d.GetCluster(), Domain: d.GetDomain(), Gateways: d.GetGateways(), TrustDomain: d.GetTrustDomain(), Roots: roots,
		Replicas: s.cfg.Replica != "", Invited: req.GetCluster(), ExpiresUnix: s.cfg.Now().Add(min(lasts, longestExpiry)).Unix(),
		Guest: s.offered(req.GetGuest()),
	})
	if err != nil {
		return nil, err
	}
	text := i.text()
	e, refused := s.invitations.add(i, req.GetOptions(), s.cfg.Replica, identity.Caller(ctx))
	if refused != nil {
		return nil, refused
	}
	state, _ := e.state.Load()
	s.cfg.Log.Info("invitation opened", "id", state.GetId(), "peer", state.GetCluster(), "by", state.GetBy(), "expires", i.expires(), "guest", req.GetGuest() != nil)
	return &v1alpha1.InviteResponse{Invitation: text, State: state}, nil
}

// Follow streams the state of an invitation until it has ended.
func (s *Server) Follow(req *v1alpha1.FollowRequest, to grpc.ServerStreamingServer[v1alpha1.LinkState]) error {
	e, refused := s.invitations.find(req.GetId())
	if refused != nil {
		return refused
	}
	expiry := time.NewTimer(time.Until(e.invitation.expires()))
	defer expiry.Stop()
	for {
		state, _, changed := e.state.Follow()
		if err := to.Send(state); err != nil {
			return err
		}
		select {
		case <-e.stop:
			last, _ := e.state.Load()
			if last == state {
				return nil
			}
			return to.Send(last)
		default:
		}
		select {
		case <-changed:
		case <-expiry.C:
			s.invitations.open() // which ends it
		case <-to.Context().Done():
			return nil
		}
	}
}

// Confirm says whether a person found the same words on both sides.
func (s *Server) Confirm(_ context.Context, req *v1alpha1.ConfirmRequest) (*v1alpha1.LinkState, error) {
	s.mu.Lock()
	pending := s.accepted[req.GetId()]
	s.mu.Unlock()
	state := &v1alpha1.LinkState{Id: req.GetId()}
	if pending == nil {
		e, refused := s.invitations.find(req.GetId())
		if refused != nil {
			return nil, refused
		}
		state, _ = e.state.Load()
		if state.GetState() != stateConfirm {
			return nil, refuse(NotConfirmed, "nobody waits for a confirmation of it")
		}
		pending = e.confirmed
	}
	select {
	case pending <- req.GetSame():
	default: // somebody was first
	}
	return state, nil
}

// Invitations lists those of this replica.
func (s *Server) Invitations(context.Context, *v1alpha1.InvitationsRequest) (*v1alpha1.InvitationsResponse, error) {
	return &v1alpha1.InvitationsResponse{Invitations: s.invitations.list()}, nil
}

// Revoke ends an open invitation.
func (s *Server) Revoke(ctx context.Context, req *v1alpha1.RevokeRequest) (*v1alpha1.LinkState, error) {
	state, refused := s.invitations.revoke(req.GetId())
	if refused != nil {
		return nil, refused
	}
	s.cfg.Log.Info("invitation revoked", "id", state.GetId(), "peer", state.GetCluster(), "by", identity.Caller(ctx))
	return state, nil
}

// Trust tells which sidecars lack the roots of a linked cluster.
func (s *Server) Trust(ctx context.Context, req *v1alpha1.LinkTrustRequest) (*v1alpha1.LinkTrustResponse, error) {
	if s.cfg.Identity.Insecure() {
		return nil, refuse(Insecure, "")
	}
	own, err := s.cfg.Identity.Anchors()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	c, err := s.held(ctx, req.GetCluster())
	if err != nil {
		return nil, err
	}
	answer := &v1alpha1.LinkTrustResponse{OwnRoots: string(own), PeerRoots: c.Trust.Roots, SentryNamespace: s.cfg.Sentry}
	if c.Trust.Roots == "" {
		return answer, nil // it has this cluster's own
	}
	sums, err := fingerprints(c.Trust.Roots)
	if err != nil {
		return nil, refuse(Malformed, err.Error())
	}
	names := make([]string, len(sums))
	for i, sum := range sums {
		names[i] = hex.EncodeToString(sum)
	}
	answer.Apps = slices.DeleteFunc(s.cfg.Lacking(ctx, map[string][]string{c.Name: names})[c.Name], func(a *v1alpha1.LackingApp) bool { return a.GetSidecars() == 0 })
	return answer, nil
}
