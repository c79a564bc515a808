package invitation

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
)

// altered is an invitation with a change of its bytes, and with a checksum that is right again.
func altered(t *testing.T, text string, change func(b []byte)) string {
	t.Helper()
	i := mustParse(t, text)
	rest := append(bytes.Clone(i.secret), i.public...)
	change(rest)
	return fmt.Sprintf("%s%d.%s", prefix, version, base64.RawURLEncoding.EncodeToString(append(checksum(rest), rest...)))
}

// fieldAt names the field of an invitation that a byte belongs to.
func fieldAt(i *invitation, at int) string {
	if at < secretLength {
		return "secret"
	}
	for n, where := 0, secretLength; where < secretLength+len(i.public); n++ {
		_, kind, length := parseField(i.public[where-secretLength:])
		if at < where+length {
			return kind
		}
		where += length
	}
	return "?"
}

func TestATypoIsNamed(t *testing.T) {
	_, east := twoClusters(t)
	text := east.invite("west", nil)
	for at := range text {
		for _, with := range []string{"", "A", "B", "-"} {
			if typo := text[:at] + with + text[at+1:]; typo != text {
				_, err := parseInvitation(typo)
				var r *Refusal
				if !errors.As(err, &r) || r.Reason != Malformed && r.Reason != Version {
					t.Errorf("%q for character %d: %v", with, at, err)
				}
				if s := base64.RawURLEncoding.EncodeToString(mustParse(t, text).secret); err != nil && strings.Contains(err.Error(), s[:8]) {
					t.Error("the error has the secret")
				}
			}
		}
	}
	folded := " '" + text[:40] + "\r\n  " + text[40:] + "'\n"
	if _, err := parseInvitation(folded); err != nil {
		t.Errorf("folded and quoted: %v", err)
	}
}

// Every bit of the secret and of the public part counts: with one that is flipped, and a checksum
// that is right, nothing is written.
func TestEveryFieldOfAnInvitationCounts(t *testing.T) {
	west, east := twoClusters(t)
	seen := map[string]map[Reason]int{}
	text := east.invite("west", nil)
	i := mustParse(t, text)
	for at := range secretLength + len(i.public) {
		bit := byte(1) << (at % 8)
		_, err := west.accept(altered(t, text, func(b []byte) { b[at] ^= bit }), nil)
		var r *Refusal
		if !errors.As(err, &r) {
			t.Fatalf("byte %d, of the %s, with bit %d flipped: %v", at, fieldAt(i, at), bit, err)
		}
		field := fieldAt(i, at)
		if seen[field] == nil {
			seen[field] = map[Reason]int{}
		}
		seen[field][r.Reason]++
		if east.state().GetState() != stateOpen { // five wrong tries
			if east.state().GetState() != string(Spent) {
				t.Fatalf("east has %v", east.state())
			}
			text = east.invite("west", nil)
			east.invitations.all = map[string]*entry{string(mustParse(t, text).Id): east.invitations.all[string(mustParse(t, text).Id)]}
			i = mustParse(t, text)
		}
	}
	if len(west.objects())+len(east.objects()) > 0 {
		t.Errorf("written: %v %v", west.objects(), east.objects())
	}
	for field, reasons := range seen {
		t.Logf("%s: %v", field, reasons)
	}
	for field, want := range map[string]Reason{"secret": Altered, "roots": Intercepted, "id": Unknown, "gateways": Unreachable} {
		if seen[field][want] == 0 {
			t.Errorf("%s altered: %v, and never %s", field, seen[field], want)
		}
	}
	if _, err := west.accept(text, nil); err != nil {
		t.Errorf("unaltered: %v", err)
	}
}

func TestAMeetingIsRefusedByItsReason(t *testing.T) {
	for what, c := range map[string]struct {
		arrange func(t *testing.T, west, east *cluster) (invitation string)
		want    Reason
	}{
		"late": {func(t *testing.T, west, east *cluster) string {
			text := east.invite("west", nil)
			west.ahead, east.ahead = time.Hour, time.Hour
			return text
		}, Expired},
		"late by the inviter's clock alone": {func(t *testing.T, _, east *cluster) string {
			text := east.invite("west", nil)
			east.ahead = time.Hour - time.Minute
			return text
		}, Expired},
		"late by the accepter's clock, and nobody there": {func(_ *testing.T, west, east *cluster) string {
			east.cfg.Gateways = []string{"192.0.2.1:15443"}
			text := east.invite("west", nil)
			west.ahead = 20 * time.Minute
			return text
		}, Expired},
		"for another name": {func(_ *testing.T, _, east *cluster) string { return east.invite("north", nil) }, WrongName},
		"its own":          {func(_ *testing.T, west, _ *cluster) string { return west.invite("east", nil) }, OwnCluster},
		"of another domain": {func(_ *testing.T, west, east *cluster) string {
			west.cfg.Domain = "elsewhere.internal"
			return east.invite("west", nil)
		}, OtherDomain},
		"revoked": {func(t *testing.T, _, east *cluster) string {
			text := east.invite("west", nil)
			if _, err := east.Revoke(t.Context(), &v1alpha1.RevokeRequest{Id: east.state().GetId()[:8]}); err != nil {
				t.Fatal(err)
			}
			return text
		}, Revoked},
		"unknown": {func(_ *testing.T, _, east *cluster) string {
			text := east.invite("west", nil)
			east.invitations.all = map[string]*entry{} // as after a restart
			return text
		}, Unknown},
		"nobody there": {func(t *testing.T, _, east *cluster) string {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l.Close()
			east.cfg.Gateways = []string{l.Addr().String()}
			return east.invite("west", nil)
		}, Unreachable},
		"led to an app under the inviter's root": {func(t *testing.T, _, east *cluster) string {
			app := newCluster(t, "east", east.ca, catalog.App{Namespace: "shop", ID: "orders"})
			east.cfg.Gateways = []string{app.address}
			return east.invite("west", nil)
		}, Intercepted},
		"led to one with another root": {func(t *testing.T, _, east *cluster) string {
			east.cfg.Gateways = []string{service(t, "east").address}
			return east.invite("west", nil)
		}, Intercepted},
		"led to another cluster under one root": {func(t *testing.T, _, east *cluster) string {
			north := newCluster(t, "north", east.ca, identity.ServiceApp("", "north"))
			east.cfg.Gateways = []string{north.address}
			return east.invite("west", nil)
		}, Intercepted},
		"a store that can't be written here": {func(_ *testing.T, west, east *cluster) string {
			west.cfg.MayWrite = func(context.Context) error { return fmt.Errorf("verb update: %w", configstore.ErrDenied) }
			return east.invite("west", nil)
		}, ReadOnly},
	} {
		t.Run(what, func(t *testing.T) {
			west, east := twoClusters(t)
			east.limits.search, west.limits.search = 0, 0
			text := c.arrange(t, west, east)
			_, err := west.accept(text, nil)
			refusedFor(t, err, c.want, west, east)
			if log := west.log.String(); !strings.Contains(log, "reason="+string(c.want)) || !strings.Contains(log, err.Error()[:40]) {
				t.Errorf("the log has other words than the error %q:\n%s", err, log)
			}
		})
	}
}

// An invitation that names a cluster is refused to another one, also if that does not mind.
func TestAnotherClusterCanNotUseAnInvitation(t *testing.T) {
	_, east := twoClusters(t)
	text := east.invite("west", nil)
	for what, c := range map[string]struct {
		app  catalog.App
		want Reason
	}{
		"another cluster's service": {identity.ServiceApp("", "north"), WrongName},
		"an app":                    {catalog.App{Namespace: "shop", ID: "west"}, WrongName},
	} {
		t.Run(what, func(t *testing.T) {
			thief := newCluster(t, "north", identitytest.NewCA(t), c.app)
			for _, name := range []string{"west", "north"} {
				err := steal(t, thief, text, name)
				refusedFor(t, err, c.want, thief, east)
			}
		})
	}
	// One that has the name, and a certificate of no root that it shows.
	thief := service(t, "west")
	other := identitytest.NewCA(t)
	err := thief.raw(t, text, func(m *rawMeeting) { m.own.Roots = string(other.PEM()) })
	refusedFor(t, err, Certificate, thief, east)
}

// steal uses an invitation under a name, with none of the checks that protect who accepts.
func steal(t *testing.T, thief *cluster, text, name string) error {
	t.Helper()
	return thief.raw(t, text, func(m *rawMeeting) { m.own.Cluster = name })
}

// rawMeeting is the accepter's side of a meeting, whose parts a test may alter.
type rawMeeting struct {
	own        *v1alpha1.MeetDescription
	invitation *invitation
	nonce      []byte
	commitment []byte
	binding    []byte // instead of the connection's
	mac        func(right []byte) []byte
}

// raw meets the cluster that invites with an altered meeting, up to its answer.
func (c *cluster) raw(t *testing.T, text string, alter func(*rawMeeting)) error {
	t.Helper()
	i := mustParse(t, text)
	own, err := c.describe(&v1alpha1.LinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots, err := fingerprints(own.GetRoots())
	if err != nil {
		t.Fatal(err)
	}
	m := &rawMeeting{own: own, invitation: i, nonce: make([]byte, nonceLength), mac: bytes.Clone}
	m.commitment = side{roots, m.nonce}.hash()
	alter(m)
	conn, err := grpc.NewClient("passthrough:///"+i.GetGateways()[0], grpc.WithTransportCredentials(c.cfg.Identity.BootstrapCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := v1alpha1.NewLinkingClient(conn).Meet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	with, err := identity.BootstrapOf(stream.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m.binding != nil {
		with.Binding = m.binding
	}
	return m.exchange(t, stream, with)
}

func (m *rawMeeting) exchange(t *testing.T, stream grpc.BidiStreamingClient[v1alpha1.MeetRequest, v1alpha1.MeetResponse], with *identity.Bootstrap) error {
	t.Helper()
	hello, _ := proto.Marshal(&v1alpha1.MeetHello{Version: version, Commitment: m.commitment})
	if err := stream.Send(&v1alpha1.MeetRequest{Message: &v1alpha1.MeetRequest_Hello{Hello: hello}}); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		return err
	}
	if answer.GetRefused() != "" {
		return refusedThere(answer.GetRefused())
	}
	offer, _ := proto.Marshal(&v1alpha1.MeetOffer{Id: m.invitation.Id, Nonce: m.nonce, Cluster: m.own})
	inviter := make([][]byte, len(with.Peer))
	for n, c := range with.Peer {
		inviter[n] = c.Raw
	}
	mac, err := newProof(m.invitation, with, inviter, with.Own).mac(toInviter, hello, answer.GetWelcome(), offer)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&v1alpha1.MeetRequest{Message: &v1alpha1.MeetRequest_Offer{Offer: offer}, Mac: m.mac(mac)}); err != nil {
		t.Fatal(err)
	}
	if answer, err = stream.Recv(); err != nil {
		return err
	}
	if answer.GetRefused() != "" {
		return refusedThere(answer.GetRefused())
	}
	return nil
}

func TestFiveWrongTriesEndAnInvitation(t *testing.T) {
	west, east := twoClusters(t)
	thief := service(t, "west")
	text := east.invite("west", nil)
	wrong := map[string]func(*rawMeeting){
		"another secret":     func(m *rawMeeting) { m.invitation.secret[0] ^= 1 },
		"another MAC":        func(m *rawMeeting) { m.mac = func(right []byte) []byte { right[31] ^= 1; return right } },
		"no MAC":             func(m *rawMeeting) { m.mac = func([]byte) []byte { return nil } },
		"another connection": func(m *rawMeeting) { m.binding = make([]byte, 32) },
		"another nonce":      func(m *rawMeeting) { m.nonce = bytes.Repeat([]byte{1}, nonceLength) },
	}
	left := uint32(maxTries)
	for what, alter := range wrong {
		if s := east.state(); s.GetTriesLeft() != left || s.GetState() != stateOpen {
			t.Fatalf("%d tries left: %v", left, s)
		}
		left--
		refusedFor(t, thief.raw(t, text, alter), Altered, thief, east)
		if s := east.state(); s.GetReason() != string(Altered) && s.GetReason() != string(Spent) {
			t.Errorf("%s: %v", what, s)
		}
	}
	_, err := west.accept(text, nil)
	refusedFor(t, err, Spent, west, east)
	if s := east.state(); s.GetState() != string(Spent) {
		t.Errorf("east has %v", s)
	}
	// Who does not know the ID ends nothing.
	text = east.invite("west", nil)
	for range 2 * maxTries {
		refusedFor(t, thief.raw(t, text, func(m *rawMeeting) { m.invitation.Id[0] ^= 1 }), Unknown, thief, east)
	}
	if _, err := west.accept(text, nil); err != nil {
		t.Error(err)
	}
}

// Somebody who altered the string on its way, and uses the real one, is in the middle of both
// meetings. Nothing but the words tells, and they do.
func TestWordsTellOfAnotherRoot(t *testing.T) {
	west, east := twoClusters(t)
	evilEast, evilWest := service(t, "east"), service(t, "west")
	here, err := west.accept(evilEast.invite("west", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	there, err := evilWest.accept(east.invite("west", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if slices.Equal(here.GetWords(), there.GetWords()) {
		t.Errorf("west and east show the same words, %v", here.GetWords())
	}
	// Neither side chooses what the words are made of after it knows the other's part.
	refusedFor(t, evilWest.raw(t, east.invite("west", &v1alpha1.LinkOptions{Replace: true}), func(m *rawMeeting) {
		m.commitment = side{[][]byte{make([]byte, 32)}, m.nonce}.hash()
	}), Altered)
}

func TestWordsAreThoseOfBothSides(t *testing.T) {
	words := wordList()
	if len(words) != 1<<wordBits || !slices.IsSorted(words) || len(slices.Compact(slices.Clone(words))) != 1<<wordBits {
		t.Fatalf("%d words, sorted %v", len(words), slices.IsSorted(words))
	}
	fp := func(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }
	a, b := side{[][]byte{fp(1), fp(2)}, fp(3)}, side{[][]byte{fp(4)}, fp(5)}
	first := fmt.Sprint(wordsFor(a, b))
	if got := fmt.Sprint(wordsFor(side{[][]byte{fp(2), fp(1)}, fp(3)}, b)); got != first {
		t.Errorf("roots in another order: %s, not %s", got, first)
	}
	for what, other := range map[string]string{
		"another root":     fmt.Sprint(wordsFor(side{[][]byte{fp(1), fp(9)}, fp(3)}, b)),
		"one root less":    fmt.Sprint(wordsFor(side{[][]byte{fp(1)}, fp(3)}, b)),
		"another nonce":    fmt.Sprint(wordsFor(a, side{[][]byte{fp(4)}, fp(9)})),
		"sides exchanged":  fmt.Sprint(wordsFor(b, a)),
		"a root elsewhere": fmt.Sprint(wordsFor(side{[][]byte{fp(1)}, fp(3)}, side{[][]byte{fp(2), fp(4)}, fp(5)})),
	} {
		if other == first {
			t.Errorf("%s: the same words, %s", what, first)
		}
	}
}

// A MAC is for one direction and one connection.
func TestAMACIsForOneDirection(t *testing.T) {
	i, err := newInvitation(&v1alpha1.Invitation{Cluster: "east", Invited: "west"})
	if err != nil {
		t.Fatal(err)
	}
	mac := func(direction string, binding byte, chains ...[][]byte) string {
		m, err := newProof(i, &identity.Bootstrap{Binding: []byte{binding}}, chains[0], chains[1]).mac(direction, []byte("a"), []byte("b"))
		if err != nil {
			t.Fatal(err)
		}
		return hex.EncodeToString(m)
	}
	one, two := [][]byte{{1}, {2}}, [][]byte{{3}}
	all := []string{
		mac(toInviter, 1, one, two), mac(toAccepter, 1, one, two), mac(toInviter, 2, one, two), mac(toInviter, 1, two, one),
		mac(toInviter, 1, [][]byte{{1, 2}}, two), mac(toInviter, 1, [][]byte{{1}, {2}, {3}}, nil),
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 6 {
		t.Errorf("two are the same: %v", all)
	}
}

func TestMeetingsAreBounded(t *testing.T) {
	west, east := twoClusters(t)
	east.limits.proof = 5 * time.Second
	text := east.invite("west", nil)
	flood := service(t, "north")
	conn, err := grpc.NewClient("passthrough:///"+east.address, grpc.WithTransportCredentials(flood.cfg.Identity.BootstrapCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	refused, ended := 0, make(chan error, 4*maxMeetings)
	for range 4 * maxMeetings { // each says nothing
		stream, err := v1alpha1.NewLinkingClient(conn).Meet(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			answer, err := stream.Recv()
			if err == nil {
				err = refusedThere(answer.GetRefused())
			}
			ended <- err
		}()
	}
	for range 4 * maxMeetings {
		if err := <-ended; strings.Contains(err.Error(), "too many meetings") {
			refused++
		}
	}
	if refused < 2*maxMeetings {
		t.Errorf("%d of %d were refused at once, the others after %s", refused, 4*maxMeetings, east.limits.proof)
	}
	if n := strings.Count(east.log.String(), "link refused"); n > 2 {
		t.Errorf("%d lines in the log", n)
	}
	if _, err := west.accept(text, nil); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	for range maxOpen {
		_, err = east.Invite(t.Context(), &v1alpha1.InviteRequest{Cluster: "west"})
	}
	if err != nil {
		t.Error(err)
	}
	_, err = east.Invite(t.Context(), &v1alpha1.InviteRequest{Cluster: "west"})
	refusedFor(t, err, Busy)
}

func TestEveryReasonIsInTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../../docs/how-to/connect-clusters.md")
	if err != nil {
		t.Fatal(err)
	}
	for reason := range advice {
		if !strings.Contains(string(page), "`"+string(reason)+"`") {
			t.Errorf("connect-clusters.md says nothing of %s", reason)
		}
	}
}
