package invitation

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// acceptance is the accepter's side of a meeting.
type acceptance struct {
	*Server
	*invitation
	options *v1alpha1.LinkOptions
	own     *v1alpha1.MeetDescription
	nonce   []byte
	state   *v1alpha1.LinkState
	tell    func(*v1alpha1.LinkState) error
	choice  *v1alpha1.GuestChoice // nil: two clusters are linked
	joined  *Joined
}

func (s *Server) acceptance(options *v1alpha1.LinkOptions, tell func(*v1alpha1.LinkState) error) *acceptance {
	a := &acceptance{Server: s, options: options, nonce: make([]byte, nonceLength), tell: tell}
	rand.Read(a.nonce)
	return a
}

// Accept has this service meet the one that invites.
func (s *Server) Accept(req *v1alpha1.AcceptRequest, to grpc.ServerStreamingServer[v1alpha1.LinkState]) error {
	a := s.acceptance(req.GetOptions(), to.Send)
	err := a.accept(to.Context(), req.GetInvitation())
	if err == nil {
		return nil
	}
	r := reasonOf(err)
	args := []any{"reason", string(r.Reason), "err", r.Error(), "by", identity.Caller(to.Context())}
	if a.invitation != nil {
		args = append(args, "id", hex.EncodeToString(a.Id), "peer", a.GetCluster())
	}
	s.cfg.Log.Warn("link refused", args...)
	return r
}

func (a *acceptance) accept(ctx context.Context, text string) (err error) {
	if a.invitation, err = parseInvitation(text); err != nil {
		return err
	}
	defer clear(a.secret)
	if err := a.fits(); err != nil {
		return err
	}
	if a.own, err = a.describe(a.options); err != nil {
		return err
	}
	if a.choice == nil {
		if err := a.mayWrite(ctx, a.options); err != nil {
			return err
		}
	}
	a.state = &v1alpha1.LinkState{
		Id: hex.EncodeToString(a.Id), Cluster: a.GetCluster(), State: stateOpen, ExpiresUnixMs: a.expires().UnixMilli(), Replica: a.cfg.Replica, By: identity.Caller(ctx),
	}
	return a.search(ctx)
}

// fits tells whether the invitation is for this cluster.
func (a *acceptance) fits() error {
	switch {
	case (a.GetGuest() == nil) != (a.choice == nil):
		return refuse(OtherKind, "")
	case a.GetCluster() == a.cfg.Cluster:
		return refuse(OwnCluster, "")
	case a.GetInvited() != a.cfg.Cluster:
		return refusef(WrongName, "it is for cluster %s, and this is %s", a.GetInvited(), a.cfg.Cluster)
	case a.GetDomain() != string(a.cfg.Domain):
		return refusef(OtherDomain, "%s there, and %s here", a.GetDomain(), a.cfg.Domain)
	}
	return nil
}

// past is the refusal of an invitation whose time is over by this machine's clock, once nobody was
// found who has it. Its time runs by the clock of the cluster that invites.
func (a *acceptance) past(otherwise error) error {
	if now := a.cfg.Now(); now.After(a.expires()) {
		return refusef(Expired, "it ended at %s, by this machine's clock it is %s, and %s", a.expires().UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339), reasonOf(otherwise).Detail)
	}
	return otherwise
}

// searchPause is the least time between two attempts.
const searchPause = 100 * time.Millisecond

// search tries the gateways until one leads to the replica that has the invitation. Each attempt
// is a new connection, which a load balancer may lead to another replica.
func (a *acceptance) search(ctx context.Context) error {
	end := time.Now().Add(a.limits.search)
	var away, unknown error
	for n := 0; ; n++ {
		err := a.attempt(ctx, a.GetGateways()[n%len(a.GetGateways())])
		if err == nil {
			return nil
		}
		switch reasonOf(err).Reason {
		case Unknown:
			unknown = err
		case Unreachable:
			away = err
		default:
			return err
		}
		switch {
		case ctx.Err() != nil:
			return refuse(Interrupted, "")
		case n+1 < len(a.GetGateways()):
		case unknown == nil:
			return a.past(away)
		case !a.GetReplicas() || time.Now().After(end):
			return a.past(unknown)
		}
		live.Sleep(ctx, searchPause)
	}
}

// attempt is one connection, with one meeting if the invitation is there.
func (a *acceptance) attempt(ctx context.Context, gateway string) error {
	operators := ctx
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	detach := context.AfterFunc(operators, cancel)
	defer detach()
	within := time.AfterFunc(a.limits.proof, cancel)
	defer within.Stop()
	creds := &handshakes{TransportCredentials: a.cfg.Identity.BootstrapCredentials()}
	conn, err := grpc.NewClient("passthrough:///"+gateway, grpc.WithTransportCredentials(creds), grpc.WithDisableRetry(),
		grpc.WithAuthority(a.cfg.Domain.LinkHost(a.GetCluster())), grpc.WithContextDialer(a.cfg.Dial))
	if err != nil {
		return refuse(Unreachable, err.Error())
	}
	defer conn.Close()
	stream, err := v1alpha1.NewLinkingClient(conn).Meet(ctx)
	if err != nil {
		return creds.refusal(gateway, err)
	}
	with, err := identity.BootstrapOf(stream.Context())
	if err != nil {
		return refuse(Intercepted, err.Error())
	}
	m := &accepterMeeting{acceptance: a, with: with, stream: stream, hangUp: cancel, detach: detach}
	if err := m.prove(); err != nil {
		var known *Refusal
		if !errors.As(err, &known) {
			err = creds.refusal(gateway, err)
		}
		return err
	}
	within.Stop()
	return m.decide(ctx)
}

// handshakes notes why a handshake failed, which gRPC tells as a text.
type handshakes struct {
	credentials.TransportCredentials
	mu  sync.Mutex
	err error
}

// ClientHandshake is the handshake.
func (h *handshakes) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := h.TransportCredentials.ClientHandshake(ctx, authority, raw)
	h.mu.Lock()
	h.err = err
	h.mu.Unlock()
	return conn, info, err
}

// Clone returns itself, since the notes are wanted.
func (h *handshakes) Clone() credentials.TransportCredentials { return h }

// refusal says why there was no meeting at a gateway.
func (h *handshakes) refusal(gateway string, err error) *Refusal {
	h.mu.Lock()
	defer h.mu.Unlock()
	var stranger *identity.Stranger
	switch {
	case errors.As(h.err, &stranger):
		return refusef(Intercepted, "%s: %v", gateway, h.err)
	case h.err != nil && strings.Contains(h.err.Error(), "unrecognized name"):
		return refusef(Unknown, "%s knows of no open invitation", gateway)
	case h.err != nil:
		return refusef(Unreachable, "%s: %v", gateway, h.err)
	}
	return refusef(Unreachable, "%s: %s", gateway, catalog.Printable(err.Error()))
}

// accepterMeeting is one meeting at the accepter's side.
type accepterMeeting struct {
	*acceptance
	with   *identity.Bootstrap
	stream grpc.BidiStreamingClient[v1alpha1.MeetRequest, v1alpha1.MeetResponse]
	hangUp func()
	detach func() bool // from the operator's call, which may end from then on
	peer   *v1alpha1.MeetDescription
	words  []string
	clocks string // how they differ
}

// receive is the next message, or the refusal of the other side.
func (m *accepterMeeting) receive() (*v1alpha1.MeetResponse, error) {
	answer, err := m.stream.Recv()
	if err == nil && answer.GetRefused() != "" {
		refused := refusedThere(answer.GetRefused())
		if refused.Reason == Clocks || refused.Reason == Expired {
			refused.Detail = m.clocks
		}
		err = refused
	}
	return answer, err
}

// prove is messages 1 to 4.
func (m *accepterMeeting) prove() error {
	roots, err := fingerprints(m.own.GetRoots())
	if err != nil {
		return err
	}
	mine := side{roots, m.nonce}
	hello, err := proto.Marshal(&v1alpha1.MeetHello{Version: version, Commitment: mine.hash(), NowUnixMs: m.cfg.Now().UnixMilli()})
	if err != nil {
		return err
	}
	if err := m.stream.Send(&v1alpha1.MeetRequest{Message: &v1alpha1.MeetRequest_Hello{Hello: hello}}); err != nil {
		_, err = m.receive() // which says why
		return err
	}
	answer, err := m.receive()
	if err != nil {
		return err
	}
	var welcome v1alpha1.MeetWelcome
	if proto.Unmarshal(answer.GetWelcome(), &welcome) != nil {
		return refuse(Intercepted, "it answers with something else than welcome")
	}
	m.clocks = m.Server.clocks(welcome.GetNowUnixMs())
	theirs, err := m.known(&welcome)
	if err != nil {
		return err
	}
	offer, err := proto.Marshal(&v1alpha1.MeetOffer{Id: m.Id, Nonce: m.nonce, Cluster: m.own, Guest: m.choice})
	if err != nil {
		return err
	}
	m.words = wordsFor(side{theirs, welcome.GetNonce()}, mine)
	return m.exchange(hello, answer.GetWelcome(), offer)
}

// known tells whether who answers is the cluster that the invitation is from. Nothing about this
// cluster is said before.
func (m *accepterMeeting) known(welcome *v1alpha1.MeetWelcome) (roots [][]byte, err error) {
	roots, err = fingerprints(welcome.GetRoots())
	if err != nil {
		return nil, refuse(Intercepted, err.Error())
	}
	invited := slices.SortedFunc(slices.Values(m.GetRoots()), slices.Compare)
	if !slices.EqualFunc(roots, invited, slices.Equal) {
		return nil, refuse(Intercepted, "its roots are not those of the invitation")
	}
	if len(welcome.GetNonce()) != nonceLength {
		return nil, refuse(Intercepted, "it has sent no nonce")
	}
	by := catalog.Trust{Domain: m.GetTrustDomain(), Roots: welcome.GetRoots()}
	if err := identity.VerifyBootstrap(m.with, m.cfg.Namespace, m.GetCluster(), by, true); err != nil {
		return nil, distrust(err, Intercepted, m.clocks)
	}
	return roots, nil
}

// exchange is messages 3 and 4.
func (m *accepterMeeting) exchange(hello, welcome, offer []byte) error {
	inviter := make([][]byte, len(m.with.Peer))
	for n, c := range m.with.Peer {
		inviter[n] = c.Raw
	}
	p := newProof(m.invitation, m.with, inviter, m.with.Own)
	mac, err := p.mac(toInviter, hello, welcome, offer)
	if err != nil {
		return err
	}
	if err := m.stream.Send(&v1alpha1.MeetRequest{Message: &v1alpha1.MeetRequest_Offer{Offer: offer}, Mac: mac}); err != nil {
		_, err = m.receive()
		return err
	}
	answer, err := m.receive()
	if err != nil {
		return err
	}
	return m.answered(p, answer)
}

// answered judges message 4.
func (m *accepterMeeting) answered(p *proof, answer *v1alpha1.MeetResponse) error {
	want, err := p.mac(toAccepter, answer.GetAnswer())
	if err != nil {
		return err
	}
	var d v1alpha1.MeetDescription
	if !hmac.Equal(want, answer.GetMac()) || proto.Unmarshal(answer.GetAnswer(), &d) != nil {
		return refuse(Altered, "the other side does not know the secret")
	}
	if d.GetCluster() != m.GetCluster() || d.GetDomain() != m.GetDomain() || d.GetTrustDomain() != m.GetTrustDomain() || !slices.Equal(d.GetGateways(), m.GetGateways()) {
		return refuse(Altered, "the other side says something else than its invitation")
	}
	sums, err := fingerprints(d.GetRoots())
	if err != nil || !slices.EqualFunc(sums, slices.SortedFunc(slices.Values(m.GetRoots()), slices.Compare), slices.Equal) {
		return refuse(Altered, "the other side has other roots than its invitation")
	}
	m.peer = &d
	return nil
}

// decide is messages 5 and 6, and the end.
func (m *accepterMeeting) decide(ctx context.Context) error {
	var t *target
	var err error
	if m.choice == nil {
		t, err = m.prepare(ctx, m.peer, m.options)
	}
	if err == nil {
		err = m.compare(ctx)
	}
	decision := &v1alpha1.MeetDecision{}
	if err == nil && !m.detach() {
		err = refuse(Interrupted, "")
	}
	if err != nil {
		decision.Refused = string(reasonOf(err).Reason)
	}
	sent := m.stream.Send(&v1alpha1.MeetRequest{Message: &v1alpha1.MeetRequest_Decision{Decision: decision}})
	if err != nil {
		_, _ = m.receive() // so that it has arrived
		return err
	}
	if sent != nil {
		_, err := m.receive()
		return err
	}
	late := time.AfterFunc(m.limits.confirm+m.limits.write, m.hangUp)
	defer late.Stop()
	answer, err := m.receive()
	switch {
	case err != nil:
		return err
	case answer.GetDone() == nil:
		return refuse(Interrupted, "it has said something else than done")
	case m.choice != nil:
		m.acceptance.joined = &Joined{m.cfg.Cluster, m.peer, answer.GetDone().GetGuest(), m.words}
		return nil
	}
	result, err := m.write(ctx, t, m.options)
	if err != nil {
		r := reasonOf(err)
		r.Detail += "; the other cluster has written its object already: accept another invitation, or delete that object there"
		return r
	}
	m.cfg.Log.Info("clusters linked", "peer", m.GetCluster(), "role", "accepter", "words", m.words, "by", m.state.GetBy())
	m.state = proto.CloneOf(m.state)
	m.state.State, m.state.Object, m.state.Result, m.state.Words = stateLinked, api.EncodeJSON(t.object), result, m.words
	_ = m.tell(m.state) // nobody may listen any more
	return nil
}

// compare shows the words, and waits for the person if that is wanted.
func (m *accepterMeeting) compare(ctx context.Context) error {
	state := proto.CloneOf(m.state)
	state.State, state.Words = stateMeeting, m.words
	if m.options.GetConfirm() {
		state.State = stateConfirm
		said := make(chan bool, 1)
		m.mu.Lock()
		m.accepted[state.GetId()] = said
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			delete(m.accepted, state.GetId())
			m.mu.Unlock()
		}()
		if err := m.tell(state); err != nil {
			return err
		}
		return confirmed(ctx, said, m.stream.Context().Done(), m.limits.confirm)
	}
	return m.tell(state)
}
