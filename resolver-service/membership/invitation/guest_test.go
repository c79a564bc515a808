package invitation

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

// hosts has a cluster invite guests; its Sentry signs as fails says.
func hosts(t *testing.T, fails *error) *cluster {
	t.Helper()
	west := service(t, "west")
	west.cfg.MayCertify = func() error { return nil }
	west.cfg.Certify = func(_ context.Context, guest *catalog.Cluster, csr []byte) ([]byte, error) {
		return []byte("for " + guest.Name + ": " + string(csr)), *fails
	}
	return west
}

func caller(app, caller string) *v1alpha1.Take { return &v1alpha1.Take{App: app, Caller: caller} }

func header(app, name, value string) *v1alpha1.Take {
	return &v1alpha1.Take{App: app, Header: &v1alpha1.HeaderValue{Name: name, Value: value}}
}

func offer(lasts time.Duration, takes ...*v1alpha1.Take) *v1alpha1.GuestOffer {
	return &v1alpha1.GuestOffer{Apps: []string{"shop/orders", "shop/cart"}, Takes: takes, LastsS: uint32(lasts.Seconds())}
}

// offers opens an invitation for a guest.
func (c *cluster) offers(guest string, o *v1alpha1.GuestOffer) string {
	c.t.Helper()
	answer, err := c.Invite(c.t.Context(), &v1alpha1.InviteRequest{Cluster: guest, Guest: o})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.GetInvitation()
}

// joins is a laptop that joins.
func joins(t *testing.T, name, text string, choice *v1alpha1.GuestChoice) (*Joined, error) {
	t.Helper()
	app := identity.ServiceApp("", name)
	cert, root, err := identity.SelfSigned(identity.ID{TrustDomain: "anything", App: app})
	if err != nil {
		t.Fatal(err)
	}
	key, _ := cert.PrivateKey.(*ecdsa.PrivateKey)
	log := slog.New(slog.DiscardHandler)
	source, err := identity.New(identity.Config{Sentry: &identity.Sentry{
		Address: "nowhere.example:1", TrustAnchors: string(root), First: &identity.Signed{Certificate: identity.EncodePEM([]*x509.Certificate{cert.Leaf}), Key: key},
	}}, app, log)
	if err == nil {
		err = source.Load(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	choice.Csr = []byte("please")
	return Join(t.Context(), Config{Cluster: name, Domain: catalog.DefaultDomain, Identity: source, Log: log}, text, choice)
}

// A guest gets what its invitation offers and it has chosen, and nothing is written otherwise.
func TestAGuestChoosesFromItsOffer(t *testing.T) {
	signs := error(nil)
	west := hosts(t, &signs)
	offered := offer(time.Hour, caller("shop/orders", "shop/dev"), header("shop/orders", "x-dev", AnyValue), header("shop/orders", "x-team", "red"))
	for what, c := range map[string]struct {
		choice *v1alpha1.GuestChoice
		want   Reason // empty: it joins
	}{
		"all that is offered":   {&v1alpha1.GuestChoice{App: "shop/orders", Takes: []*v1alpha1.Take{caller("shop/orders", "shop/dev"), header("shop/orders", "X-Dev", "anna"), header("shop/orders", "x-team", "red")}}, ""},
		"no calls":              {&v1alpha1.GuestChoice{App: "shop/cart"}, ""},
		"another app":           {&v1alpha1.GuestChoice{App: "shop/payments"}, NotOffered},
		"another caller":        {&v1alpha1.GuestChoice{App: "shop/orders", Takes: []*v1alpha1.Take{caller("shop/orders", "shop/checkout")}}, NotOffered},
		"another value":         {&v1alpha1.GuestChoice{App: "shop/orders", Takes: []*v1alpha1.Take{header("shop/orders", "x-team", "blue")}}, NotOffered},
		"another header":        {&v1alpha1.GuestChoice{App: "shop/orders", Takes: []*v1alpha1.Take{header("shop/orders", "x-user", "anna")}}, NotOffered},
		"every value":           {&v1alpha1.GuestChoice{App: "shop/orders", Takes: []*v1alpha1.Take{header("shop/orders", "x-dev", AnyValue)}}, NotOffered},
		"no value":              {&v1alpha1.GuestChoice{App: "shop/orders", Takes: []*v1alpha1.Take{header("shop/orders", "x-dev", "")}}, NotOffered},
		"calls of another app":  {&v1alpha1.GuestChoice{App: "shop/cart", Takes: []*v1alpha1.Take{caller("shop/orders", "shop/dev")}}, NotOffered},
		"every call":            {&v1alpha1.GuestChoice{App: "shop/orders", Takes: []*v1alpha1.Take{{App: "shop/orders"}}}, NotOffered},
		"a caller and a header": {&v1alpha1.GuestChoice{App: "shop/orders", Takes: []*v1alpha1.Take{{App: "shop/orders", Caller: "shop/dev", Header: &v1alpha1.HeaderValue{Name: "x-dev", Value: "a"}}}}, NotOffered},
	} {
		t.Run(what, func(t *testing.T) {
			name := "guest-" + strings.ReplaceAll(what, " ", "-")
			joined, err := joins(t, name, west.offers(name, offered), c.choice)
			held, _ := west.held(t.Context(), name)
			if c.want != "" {
				if reasonOf(err).Reason != c.want || held != nil {
					t.Fatalf("got %v, with %v in the store; want %s", err, held, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := string(joined.Welcome.GetCertificate()); got != "for "+name+": please" {
				t.Errorf("it got the certificate %q", got)
			}
			g := held.Guest
			if len(g.Takes) != len(c.choice.GetTakes()) || len(g.Apps) != 1 || g.Apps[0].String() != c.choice.GetApp() || time.Until(g.Until) > time.Hour || time.Until(g.Until) < 50*time.Minute {
				t.Errorf("its object has %+v", g)
			}
			if !identity.IsGuestDomain(joined.Host.GetTrustDomain(), held.Trust.Domain) || held.Trust.Roots != "" || held.Tunnel != catalog.TunnelAccept {
				t.Errorf("its object has %+v, %s", held.Trust, held.Tunnel)
			}
		})
	}
}

// Where nothing is signed, nothing is written, and the invitation is still good. A guest takes the place of
// its former self, and of no other cluster.
func TestAGuestIsWrittenOnceItsCertificateIsSigned(t *testing.T) {
	signs := errors.New("no answer")
	west := hosts(t, &signs)
	text := west.offers("laptop", offer(time.Hour))
	choice := &v1alpha1.GuestChoice{App: "shop/orders"}
	if _, err := joins(t, "laptop", text, choice); reasonOf(err).Reason != Unsigned {
		t.Fatalf("without a signature: %v", err)
	}
	if held, err := west.held(t.Context(), "laptop"); err == nil {
		t.Fatalf("without a signature there is %v", held)
	}
	signs = nil
	if _, err := joins(t, "laptop", text, choice); err != nil {
		t.Fatal(err)
	}
	if _, err := joins(t, "laptop", text, choice); reasonOf(err).Reason != Used {
		t.Errorf("a second time: %v", err)
	}
	if _, err := joins(t, "laptop", west.offers("laptop", offer(2*time.Hour)), choice); err != nil {
		t.Errorf("again, after an end without a word: %v", err)
	}
	east := service(t, "east")
	if _, err := east.accept(west.invite("east", nil), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := joins(t, "east", west.offers("east", offer(time.Hour)), choice); reasonOf(err).Reason != Exists {
		t.Errorf("in the name of a linked cluster: %v", err)
	}
}

// An invitation of one kind is not taken for one of the other.
func TestKindsOfInvitations(t *testing.T) {
	signs := error(nil)
	west := hosts(t, &signs)
	if _, err := Read(west.invite("laptop", nil)); reasonOf(err).Reason != OtherKind {
		t.Errorf("a laptop reads what links two clusters: %v", err)
	}
	if _, err := joins(t, "laptop", west.invite("laptop", nil), &v1alpha1.GuestChoice{App: "shop/orders"}); reasonOf(err).Reason != OtherKind {
		t.Errorf("a laptop joins by what links two clusters: %v", err)
	}
	east := service(t, "east")
	if _, err := east.accept(west.offers("east", offer(time.Hour)), nil); reasonOf(err).Reason != OtherKind {
		t.Errorf("a cluster accepts what is for a guest: %v", err)
	}
	for what, o := range map[string]*v1alpha1.GuestOffer{
		"no app": {LastsS: 3600}, "no time": {Apps: []string{"shop/orders"}}, "a week": {Apps: []string{"shop/orders"}, LastsS: 7 * 24 * 3600},
		"calls of an app that it does not run": {Apps: []string{"shop/orders"}, LastsS: 3600, Takes: []*v1alpha1.Take{caller("shop/cart", "shop/dev")}},
	} {
		if _, err := west.Invite(t.Context(), &v1alpha1.InviteRequest{Cluster: "laptop", Guest: o}); reasonOf(err).Reason != NotOffered {
			t.Errorf("a guest with %s: %v", what, err)
		}
	}
	west.cfg.MayCertify = func() error { return identity.ErrSignsNothing }
	if _, err := west.Invite(t.Context(), &v1alpha1.InviteRequest{Cluster: "laptop", Guest: offer(time.Hour)}); reasonOf(err).Reason != NoSentry {
		t.Errorf("without a Sentry: %v", err)
	}
}
