package invitation

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
)

// meeting is one meeting at the inviter's side.
type meeting struct {
	*Server
	with   *identity.Bootstrap
	stream grpc.BidiStreamingServer[v1alpha1.MeetRequest, v1alpha1.MeetResponse]
	own    *v1alpha1.MeetDescription
	nonce  []byte

	hello, welcome, offer []byte // as they went over the wire
	commitment            []byte
	clocks                string // how they differ
	peer                  *v1alpha1.MeetDescription
	mac                   []byte // of the answer
	words                 []string
	entry                 *entry

	choice   *v1alpha1.GuestChoice // nil: two clusters are linked
	guest    *v1alpha1.Guest       // that it gets by it
	welcomed *v1alpha1.GuestWelcome
}

// Meet is the inviter's side of a meeting. It answers every refusal with its reason.
func (s *Server) Meet(stream grpc.BidiStreamingServer[v1alpha1.MeetRequest, v1alpha1.MeetResponse]) error {
	select {
	case s.places <- struct{}{}:
	default:
		return refuse(Busy, "too many meetings at once")
	}
	with, err := identity.BootstrapOf(stream.Context())
	if err != nil {
		<-s.places
		return refuse(Certificate, err.Error())
	}
	m := &meeting{Server: s, with: with, stream: stream, nonce: make([]byte, nonceLength)}
	rand.Read(m.nonce)
	err = m.prove()
	<-s.places
	if err == nil {
		err = m.decide()
	}
	if err == nil && m.guest != nil {
		m.joined()
		return nil
	}
	if err == nil {
		s.cfg.Log.Info("clusters linked", "peer", m.peer.GetCluster(), "role", "inviter", "words", m.words)
		return nil
	}
	r := reasonOf(err)
	s.often.Warn("refused "+string(r.Reason), "link refused", "reason", string(r.Reason), "err", r.Error(), "from", with.ID.String())
	return stream.Send(&v1alpha1.MeetResponse{Message: &v1alpha1.MeetResponse_Refused{Refused: string(r.Reason)}})
}

// receive waits for the next message for so long.
func (m *meeting) receive(most time.Duration, stop <-chan struct{}) (*v1alpha1.MeetRequest, error) {
	type received struct {
		req *v1alpha1.MeetRequest
		err error
	}
	got := make(chan received, 1)
	go func() { // ends with the stream, at the latest
		req, err := m.stream.Recv()
		got <- received{req, err}
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case r := <-got:
		return r.req, r.err
	case <-stop:
		return nil, m.stopped()
	case <-timer.C:
		return nil, refuse(Interrupted, "the other side has said nothing in time")
	}
}

// prove is messages 1 to 4, after which both sides know each other.
func (m *meeting) prove() (err error) {
	if m.own, err = m.describe(&v1alpha1.LinkOptions{NoGateway: true}); err != nil {
		return err
	}
	return m.meet()
}

func (m *meeting) meet() (err error) {
	end := time.Now().Add(m.limits.proof)
	req, err := m.receive(time.Until(end), nil)
	if err != nil {
		return err
	}
	var hello v1alpha1.MeetHello
	if m.hello = req.GetHello(); proto.Unmarshal(m.hello, &hello) != nil || len(m.hello) == 0 {
		return refuse(Protocol, "it begins with something else than hello")
	}
	if hello.GetVersion() != version {
		return refuse(Version, "")
	}
	m.commitment, m.clocks = hello.GetCommitment(), m.Server.clocks(hello.GetNowUnixMs())
	if m.welcome, err = proto.Marshal(&v1alpha1.MeetWelcome{Nonce: m.nonce, Roots: m.own.GetRoots(), NowUnixMs: m.cfg.Now().UnixMilli()}); err != nil {
		return err
	}
	if err := m.stream.Send(&v1alpha1.MeetResponse{Message: &v1alpha1.MeetResponse_Welcome{Welcome: m.welcome}}); err != nil {
		return err
	}
	if req, err = m.receive(time.Until(end), nil); err != nil {
		return err
	}
	var offer v1alpha1.MeetOffer
	if m.offer = req.GetOffer(); proto.Unmarshal(m.offer, &offer) != nil {
		return refuse(Protocol, "its offer can't be read")
	}
	return m.take(&offer, req.GetMac())
}

// take judges an offer, and answers it.
func (m *meeting) take(offer *v1alpha1.MeetOffer, mac []byte) error {
	m.peer = offer.GetCluster()
	var answer []byte
	e, refused := m.invitations.try(offer.GetId(), func(e *entry) *Refusal {
		m.own.Gateways = e.invitation.GetGateways()
		var err error
		if answer, err = proto.Marshal(m.own); err != nil {
			return refuse(Interrupted, err.Error())
		}
		return m.judge(e.invitation, offer, mac, answer)
	})
	if refused != nil {
		return refused
	}
	m.entry = e
	m.invitations.mu.Lock()
	e.update(func(s *v1alpha1.LinkState) {
		s.State, s.Words = stateMeeting, m.words
		if e.options.GetConfirm() {
			s.State = stateConfirm
		}
	})
	m.invitations.mu.Unlock()
	return m.stream.Send(&v1alpha1.MeetResponse{Message: &v1alpha1.MeetResponse_Answer{Answer: answer}, Mac: m.mac})
}

// judge tells what is wrong with an offer. The secret is used in here alone.
func (m *meeting) judge(i *invitation, offer *v1alpha1.MeetOffer, mac, answer []byte) *Refusal {
	d := offer.GetCluster()
	if m.choice = offer.GetGuest(); (m.choice == nil) != (i.GetGuest() == nil) {
		return refuse(OtherKind, "")
	}
	if cluster, ok := identity.ServiceCluster(m.cfg.Namespace, m.with.ID.App); !ok || cluster != i.GetInvited() || d.GetCluster() != cluster {
		return refusef(WrongName, "the certificate of %s came for %s", m.with.ID, i.GetInvited())
	}
	accepter := make([][]byte, len(m.with.Peer))
	for n, c := range m.with.Peer {
		accepter[n] = c.Raw
	}
	p := newProof(i, m.with, m.with.Own, accepter)
	want, err := p.mac(toInviter, m.hello, m.welcome, m.offer)
	if err != nil || !hmac.Equal(want, mac) {
		return refuse(Altered, "")
	}
	if err := identity.VerifyBootstrap(m.with, m.cfg.Namespace, i.GetInvited(), trustOf(d), false); err != nil || d.GetRoots() == "" {
		return distrust(err, Certificate, m.clocks)
	}
	roots, err := fingerprints(d.GetRoots())
	if err != nil {
		return refuse(Certificate, err.Error())
	}
	theirs := side{roots, offer.GetNonce()}
	if len(theirs.nonce) != nonceLength || !hmac.Equal(theirs.hash(), m.commitment) {
		return refuse(Altered, "its roots are not those that it began with")
	}
	if d.GetDomain() != string(m.cfg.Domain) {
		return refuse(OtherDomain, "")
	}
	if m.mac, err = p.mac(toAccepter, answer); err != nil {
		return refuse(Interrupted, err.Error())
	}
	m.words = wordsFor(side{i.GetRoots(), m.nonce}, theirs)
	return nil
}

// decide is messages 5 and 6. The invitation is open again, if it comes to nothing.
func (m *meeting) decide() error {
	e := m.entry
	err := m.conclude(context.WithoutCancel(m.stream.Context()))
	if err != nil {
		m.invitations.release(e, reasonOf(err))
		return err
	}
	if err := m.stream.Send(&v1alpha1.MeetResponse{Message: &v1alpha1.MeetResponse_Done{Done: &v1alpha1.MeetDone{Guest: m.welcomed}}}); err != nil {
		m.cfg.Log.Warn("linked, and the other cluster could not be told; it may lack its object", "peer", m.peer.GetCluster(), "err", err)
	}
	return nil
}

func (m *meeting) conclude(ctx context.Context) error {
	e := m.entry
	prepare := func(ctx context.Context) (*target, error) { return m.prepare(ctx, m.peer, e.options) }
	if m.choice != nil {
		prepare = m.prepareGuest
	}
	t, err := prepare(ctx)
	if err != nil {
		return err
	}
	req, err := m.receive(m.limits.confirm+m.limits.write, e.stop)
	if err != nil {
		return err
	}
	decision := req.GetDecision()
	switch {
	case decision == nil:
		return refuse(Protocol, "it has said something else than its decision")
	case decision.GetRefused() != "":
		return refusedThere(decision.GetRefused())
	}
	if e.options.GetConfirm() {
		if err := confirmed(m.stream.Context(), e.confirmed, e.stop, m.limits.confirm); err != nil {
			return errors.Join(m.stopped(), err)
		}
	}
	if refused := m.invitations.begin(e); refused != nil {
		return refused
	}
	ctx, cancel := context.WithTimeout(ctx, m.limits.write)
	defer cancel()
	if err := m.certify(ctx, t.object); err != nil {
		return err
	}
	result, err := m.write(ctx, t, e.options)
	if err != nil {
		return err
	}
	m.invitations.commit(e, api.EncodeJSON(t.object), result)
	return nil
}

// stopped is why the invitation has ended meanwhile; nil if it has not.
func (m *meeting) stopped() error {
	m.invitations.mu.Lock()
	defer m.invitations.mu.Unlock()
	if r := m.entry.over(); r != nil {
		return r
	}
	return nil
}

// confirmed waits until a person has said that the words are the same.
func confirmed(ctx context.Context, said <-chan bool, stop <-chan struct{}, most time.Duration) error {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case same := <-said:
		if !same {
			return refuse(NotConfirmed, "the words differ, as a person says")
		}
		return nil
	case <-stop:
		return refuse(Interrupted, "")
	case <-timer.C:
		return refusef(NotConfirmed, "nobody confirmed within %s", most)
	case <-ctx.Done():
		return refuse(Interrupted, "the other side has hung up")
	}
}
