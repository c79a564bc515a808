package invitation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Bounds of a guest.
const (
	leastStay   = 10 * time.Second
	longestStay = 24 * time.Hour
	maxPerson   = 128 // bytes
)

// AnyValue is the value of a header in an offer that the guest chooses.
const AnyValue = "*"

// mayHost tells whether a guest can be invited by what the offer says; nil is no guest.
func (s *Server) mayHost(name string, offer *v1alpha1.GuestOffer) error {
	if offer == nil {
		return nil
	}
	if err := s.cfg.MayCertify(); err != nil {
		return refuse(NoSentry, err.Error())
	}
	lasts := time.Duration(offer.GetLastsS()) * time.Second
	if lasts < leastStay || lasts > longestStay {
		return refusef(NotOffered, "a guest for %s; want %s to %s", lasts, leastStay, longestStay)
	}
	tried := &v1alpha1.Guest{Until: s.cfg.Now().Add(lasts).Format(time.RFC3339), Apps: offer.GetApps()}
	for _, t := range offer.GetTakes() {
		if h := t.GetHeader(); h.GetValue() == AnyValue {
			t = &v1alpha1.Take{App: t.GetApp(), Caller: t.GetCaller(), Header: &v1alpha1.HeaderValue{Name: h.GetName(), Value: "any"}}
		}
		tried.Takes = append(tried.Takes, t)
	}
	_, err := s.guestCluster(name, tried)
	return err
}

// offered is an offer with what a guest has to know.
func (s *Server) offered(g *v1alpha1.GuestOffer) *v1alpha1.GuestOffer {
	if g != nil {
		g.Namespace = s.cfg.Namespace
	}
	return g
}

// guestCluster is the object of a guest. It has a trust domain of its own under the roots of this cluster,
// so no certificate that it gets is one of this cluster's apps or services.
func (s *Server) guestCluster(name string, g *v1alpha1.Guest) (*catalog.Cluster, error) {
	_, domain, err := s.cfg.Identity.Authority()
	if err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	text, err := protojson.Marshal(&v1alpha1.Cluster{
		ApiVersion: catalog.Version, Kind: string(catalog.KindCluster), Metadata: &v1alpha1.Metadata{Name: name},
		Spec: &v1alpha1.ClusterSpec{Tunnel: catalog.TunnelAccept, Trust: &v1alpha1.Trust{Domain: identity.GuestDomain(domain, name)}, Guest: g},
	})
	if err != nil {
		return nil, refuse(NotOffered, err.Error())
	}
	object, err := api.DecodeJSON(api.KeyPath(catalog.Key{Kind: catalog.KindCluster, Name: name}), text)
	if err != nil {
		return nil, refuse(NotOffered, catalog.Printable(err.Error()))
	}
	return object.(*catalog.Cluster), nil
}

// chosen is what a guest gets by its choice.
func (s *Server) chosen(offer *v1alpha1.GuestOffer, c *v1alpha1.GuestChoice) (*v1alpha1.Guest, error) {
	if !slices.Contains(offer.GetApps(), c.GetApp()) {
		return nil, refusef(NotOffered, "app %q", catalog.Printable(catalog.Clip(c.GetApp(), maxPerson)))
	}
	for _, t := range c.GetTakes() {
		if t.GetApp() != c.GetApp() || t.GetHeader().GetValue() == AnyValue || !slices.ContainsFunc(offer.GetTakes(), func(o *v1alpha1.Take) bool { return holds(o, t) }) {
			return nil, refusef(NotOffered, "%q", catalog.Printable(catalog.Clip(t.String(), 2*maxPerson)))
		}
	}
	until := s.cfg.Now().Add(time.Duration(offer.GetLastsS()) * time.Second)
	return &v1alpha1.Guest{Until: until.UTC().Format(time.RFC3339), Apps: []string{c.GetApp()}, Takes: c.GetTakes()}, nil
}

// holds tells whether an offered take allows one that was chosen.
func holds(offered, chosen *v1alpha1.Take) bool {
	o, c := offered.GetHeader(), chosen.GetHeader()
	return offered.GetApp() == chosen.GetApp() && offered.GetCaller() == chosen.GetCaller() && (o == nil) == (c == nil) &&
		strings.EqualFold(o.GetName(), c.GetName()) && (o.GetValue() == c.GetValue() || o.GetValue() == AnyValue)
}

// prepareGuest is prepare for a guest. It takes the place of an earlier guest of its name, which has ended
// without a word.
func (m *meeting) prepareGuest(ctx context.Context) (t *target, err error) {
	if len(m.choice.GetCsr()) == 0 || len(m.choice.GetCsr()) > identity.MaxRequest {
		return nil, refuse(Protocol, "it wants no certificate")
	}
	if m.guest, err = m.chosen(m.entry.invitation.GetGuest(), m.choice); err != nil {
		return nil, err
	}
	c, err := m.guestCluster(m.peer.GetCluster(), m.guest)
	if err != nil {
		return nil, err
	}
	t = &target{object: c, revision: configstore.Absent}
	return t, m.try(ctx, t, func(held *v1alpha1.StoredObject) error {
		object, err := api.DecodeJSON(api.KeyPath(c.Key()), held.GetJson())
		if err != nil || object.(*catalog.Cluster).Guest == nil {
			return refuse(Exists, "Cluster "+c.Name+", which is no guest: choose another name")
		}
		t.revision = held.GetRevision()
		return nil
	})
}

// certify has the guest's certificate signed, right before its object is written.
func (m *meeting) certify(ctx context.Context, c *catalog.Cluster) error {
	if m.guest == nil {
		return nil
	}
	text, err := m.cfg.Certify(ctx, c, m.choice.GetCsr())
	if err != nil {
		m.cfg.Log.Warn("no certificate for a guest", "peer", m.peer.GetCluster(), "err", err)
		return refuse(Unsigned, err.Error())
	}
	m.welcomed = &v1alpha1.GuestWelcome{Certificate: text, Guest: m.guest}
	return nil
}

// joined notes who has come.
func (m *meeting) joined() {
	state, _ := m.entry.state.Load()
	m.cfg.Log.Info("guest joined", "peer", m.peer.GetCluster(), "app", m.choice.GetApp(), "takes", Takes(m.guest.GetTakes()), "until", m.guest.GetUntil(),
		"person", catalog.Printable(catalog.Clip(m.choice.GetPerson(), maxPerson)), "invited", state.GetBy(), "words", m.words)
}

// Takes says in words which calls are taken.
func Takes(all []*v1alpha1.Take) string {
	texts := make([]string, len(all))
	for i, t := range all {
		texts[i] = "from " + t.GetCaller()
		if h := t.GetHeader(); h != nil {
			texts[i] = fmt.Sprintf("with %s: %s", h.GetName(), h.GetValue())
		}
	}
	return strings.Join(texts, ", ")
}

// Joined is what a guest has after its meeting.
type Joined struct {
	Name    string                    // its own
	Host    *v1alpha1.MeetDescription // the cluster that invited it
	Welcome *v1alpha1.GuestWelcome
	Words   []string
}

// Read tells what an invitation says. The secret stays in the text.
func Read(text string) (*v1alpha1.Invitation, error) {
	i, err := parseInvitation(text)
	if err != nil {
		return nil, err
	}
	clear(i.secret)
	if i.GetGuest() == nil {
		return nil, refuse(OtherKind, "")
	}
	return i.Invitation, nil
}

// Join has a guest meet the cluster that invites. Of the Config, it takes what says who the guest is.
func Join(ctx context.Context, cfg Config, text string, choice *v1alpha1.GuestChoice) (*Joined, error) {
	a := New(cfg).acceptance(&v1alpha1.LinkOptions{DialOut: true}, func(*v1alpha1.LinkState) error { return nil })
	a.choice = choice
	if err := a.accept(ctx, text); err != nil {
		return nil, reasonOf(err)
	}
	return a.joined, nil
}
