package resolverservice

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/resolver-service/membership/rotation"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// accepting is trusting with consent to changes of the roots.
func accepting(object string) string {
	return strings.Replace(object, "trust: {", "trust: {rotation: accept, ", 1)
}

func (r *running) rotator() v1alpha1.RotationClient {
	return v1alpha1.NewRotationClient(r.connect(identity.CLIApp("")))
}

// announces has a service announce roots, and returns the code of its refusal.
func (r *running) announces(roots ...[]byte) (*v1alpha1.RootsChange, error) {
	r.t.Helper()
	return r.rotator().Announce(r.t.Context(), &v1alpha1.AnnounceRootsRequest{Roots: string(slices.Concat(roots...))})
}

// roots are those that a service's Cluster object names, by fingerprint.
func (r *running) roots(cluster string) (all []string) {
	clusters, _ := r.feed.Clusters().Load()
	for _, c := range clusters {
		if c.Name == cluster {
			for _, root := range identity.RootsIn(c.Trust.Roots) {
				all = append(all, identity.Fingerprint(root))
			}
		}
	}
	slices.Sort(all)
	return all
}

// shows is what a service shows of a peer.
func (r *running) shows(cluster string) *v1alpha1.PeerRotation {
	r.t.Helper()
	stream, err := r.rotator().Show(r.t.Context(), &v1alpha1.ShowRotationRequest{})
	if err != nil {
		r.t.Fatal(err)
	}
	m, err := stream.Recv()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, p := range m.GetPeers() {
		if p.GetCluster() == cluster {
			return p
		}
	}
	return nil
}

func prints(all ...*identitytest.CA) (names []string) {
	for _, ca := range all {
		names = append(names, identity.Fingerprint(identity.RootsIn(string(ca.PEM()))[0]))
	}
	slices.Sort(names)
	return names
}

// A cluster changes its root, and its peer follows by what it announces: an old root goes only after
// the new one is in use, and until then all can be undone.
func TestAPeersRootsFollowWhatItAnnounces(t *testing.T) { retryIfStalled(t, rootsFollow) }

func rootsFollow(t *testing.T, wrong func(format string, args ...any)) {
	westCA, oldCA, newCA := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	eastConfig := configOf(t, "east", oldCA)
	west, east := start(t, configOf(t, "west", westCA), westCA), start(t, eastConfig, oldCA)
	east.apply(export("west") + "---\n" + trusting("west", west.Addr("gateway"), westCA.PEM()))
	east.sidecar(orders, "10.1.0.1:50002")
	west.apply(accepting(trusting("east", east.Addr("gateway"), oldCA.PEM())) + "---\n" + selectsOrders)
	west.within("orders answered from east", func() bool { return strings.HasPrefix(west.resolve(checkout, orders), "ok orders.shop.east.") })
	follows := func(what string, roots ...*identitytest.CA) {
		t.Helper()
		west.within(what, func() bool { return slices.Equal(west.roots("east"), prints(roots...)) })
		east.within(what+", as the peer reports", func() bool {
			all := east.shows("west").GetReports()
			return len(all) == 1 && len(all[0].GetRoots()) == len(roots) && all[0].GetAccepts()
		})
	}
	add := func() {
		t.Helper()
		if change, err := east.announces(oldCA.PEM(), newCA.PEM()); err != nil || len(change.GetAdded()) != 1 {
			t.Fatalf("add: %v, %v", change, err)
		}
		follows("both roots", oldCA, newCA)
	}
	add()
	west.tells(0, "INFO roots of a peer replaced by those that it announces peer=east by=spiffe://"+identitytest.TrustDomain+"/ns/isthmus-system/isthmus-east added=")
	if _, err := east.announces(newCA.PEM()); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), identity.RootsUnproven) {
		t.Errorf("the old root goes before the new one is in use: %v", err)
	}
	if _, err := east.announces(oldCA.PEM()); err != nil {
		t.Fatalf("going back: %v", err)
	}
	follows("the old root alone", oldCA)
	add()

	files, old := eastConfig.Identity.Files, east.ownPrint()
	issue := func(ca *identitytest.CA) {
		t.Helper()
		pair := ca.Issue(identity.ServiceApp("", "east"))
		identitytest.Write(t, files.CA, append(oldCA.PEM(), newCA.PEM()...))
		identitytest.Write(t, files.Key, pair.Key)
		identitytest.Write(t, files.Cert, pair.Cert)
		east.within("the other certificate", func() bool { return east.ownPrint() != old })
		old, east.ca = east.ownPrint(), ca
	}
	issue(newCA)
	if _, err := east.announces(oldCA.PEM()); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("going back while the new root is in use: %v", err)
	}
	issue(oldCA)
	if _, err := east.announces(oldCA.PEM()); err != nil {
		t.Errorf("going back with the old issuer: %v", err)
	}
	follows("the old root alone, again", oldCA)
	add()
	issue(newCA)
	if _, err := east.announces(newCA.PEM()); err != nil {
		t.Fatalf("remove: %v", err)
	}
	follows("the new root alone", newCA)
	west.within("connected", func() bool { return west.peer("east").GetState() == "connected" })
	if n := west.peer("east").GetLapses(); n != 0 {
		wrong("the lease ran out %d times", n)
	}
	c, _ := west.feed.Clusters().Load()
	if got := c[0].Trust; got.Domain != identitytest.TrustDomain || got.AppDomain != "" || got.Rotation != catalog.RotationAccept {
		t.Errorf("the rest of the trust is %+v", got)
	}
	east.tells(0, "INFO other roots announced to peers by=isthmus-system/isthmus-cli added=", "INFO other roots announced to peers by=isthmus-system/isthmus-cli added=\\[\\] removed=")
}

// A peer that has not consented keeps its roots, says so, and its operator takes them over once.
func TestRootsNeedConsent(t *testing.T) {
	westCA, oldCA, newCA := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	west, east := start(t, configOf(t, "west", westCA), westCA), start(t, configOf(t, "east", oldCA), oldCA)
	east.apply(trusting("west", west.Addr("gateway"), westCA.PEM()))
	west.apply(trusting("east", east.Addr("gateway"), oldCA.PEM()))
	if _, err := east.announces(oldCA.PEM(), newCA.PEM()); err != nil {
		t.Fatal(err)
	}
	east.within("the peer's refusal", func() bool {
		all := east.shows("west").GetReports()
		return len(all) == 1 && all[0].GetRefused() == rotation.NoConsent && !all[0].GetAccepts()
	})
	if got := west.roots("east"); !slices.Equal(got, prints(oldCA)) {
		t.Fatalf("without consent the roots are %v", got)
	}
	for _, asked := range [][]string{nil, prints(newCA), prints(oldCA, westCA)} {
		if _, err := west.rotator().Accept(t.Context(), &v1alpha1.AcceptRootsRequest{Cluster: "east", Roots: asked}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("accepting %v: %v", asked, err)
		}
	}
	if _, err := west.rotator().Accept(t.Context(), &v1alpha1.AcceptRootsRequest{Cluster: "east", Roots: prints(oldCA, newCA)}); err != nil {
		t.Fatal(err)
	}
	if got := west.roots("east"); !slices.Equal(got, prints(oldCA, newCA)) {
		t.Errorf("after its operator has accepted, the roots are %v", got)
	}
	east.within("the peer's roots", func() bool {
		all := east.shows("west").GetReports()
		return len(all) == 1 && all[0].GetRefused() == "" && len(all[0].GetRoots()) == 2
	})
}

// What a peer with a valid certificate can't announce, although its operator consented.
func TestWhatAPeerMayNotAnnounce(t *testing.T) {
	westCA, eastCA, northCA, next := identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t), identitytest.NewCA(t)
	cfg := configOf(t, "west", westCA)
	west := start(t, cfg, westCA)
	west.apply(accepting(trusting("east", west.Addr("gateway"), eastCA.PEM())) + "---\n" + trusting("north", west.Addr("gateway"), northCA.PEM()))
	ownNext := identitytest.NewCA(t) // among west's own trust anchors, and not in use yet
	identitytest.Write(t, cfg.Identity.Files.CA, append(westCA.PEM(), ownNext.PEM()...))
	west.within("the next own root", func() bool {
		anchors, err := west.identity.Anchors()
		return err == nil && len(identity.RootsIn(string(anchors))) == 2
	})
	chain := func(ca *identitytest.CA) (all []*x509.Certificate) {
		text := ca.Issue(identity.ServiceApp("", "east")).Cert
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		return all
	}
	key := string(eastCA.Issue(checkout).Key)
	many := string(eastCA.PEM())
	for range 9 {
		many += string(identitytest.NewCA(t).PEM())
	}
	leaf := string(eastCA.Issue(checkout).Cert)
	old, add := string(eastCA.PEM()), func(ca *identitytest.CA) string { return string(eastCA.PEM()) + string(ca.PEM()) }
	for what, c := range map[string]struct {
		roots string
		by    []*x509.Certificate
		word  string
	}{
		"no PEM":                               {"roots", chain(eastCA), identity.RootsMalformed},
		"a key beside them":                    {add(next) + key, chain(eastCA), identity.RootsMalformed},
		"a certificate of an app":              {old + leaf, chain(eastCA), identity.RootsMalformed},
		"more than a rotation needs":           {many, chain(eastCA), identity.RootsTooMany},
		"as much as a message takes":           {strings.Repeat(old, 1000), chain(eastCA), identity.RootsMalformed},
		"the root of another cluster":          {add(northCA), chain(eastCA), identity.RootsTaken},
		"the root of this cluster":             {add(westCA), chain(eastCA), identity.RootsTaken},
		"the next root of this cluster":        {add(ownNext), chain(eastCA), rotation.OwnRoot},
		"the new root alone, with the old key": {string(next.PEM()), chain(eastCA), identity.RootsUnproven},
		"a root, by a certificate of it":       {add(next), chain(next), identity.RootsUnproven},
		"a root, by nobody":                    {add(next), nil, identity.RootsUnproven},
	} {
		west.rotation.Announced("east", c.roots, c.by)
		west.within(what, func() bool { return west.shows("east").GetRefused() == c.word })
		if got := west.roots("east"); !slices.Equal(got, prints(eastCA)) {
			t.Fatalf("%s: the roots are %v", what, got)
		}
		if shown := west.shows("east").GetAnnounced(); strings.Contains(shown, "PRIVATE KEY") {
			t.Fatalf("%s: operators are shown a key", what)
		}
		west.rotation.Announced("east", old, chain(eastCA)) // what is right counts again
		west.within("right again", func() bool { return west.shows("east").GetRefused() == "" })
	}
	// What another cluster introduces has no part in it.
	west.apply(strings.Replace(trusting("north", west.Addr("gateway"), northCA.PEM()), "trust: {", "introduces: {names: [eu-1], trustDomains: [eu.corp]}, trust: {", 1))
	err := west.heard.Hear("north", &v1alpha1.IntroductionsResponse{Cluster: "north", Put: []*v1alpha1.Introduction{{Object: api.Introduction(&catalog.Cluster{
		Name: "eu-1", Gateways: []string{"203.0.113.2:15443"}, Trust: catalog.Trust{Domain: "eu.corp", Roots: string(next.PEM())},
	})}}})
	if err != nil {
		t.Fatal(err)
	}
	west.within("an introduced cluster with the next root of east", func() bool { return west.peer("eu-1") != nil })
	// A peer without a Cluster object is not kept, and one that changes its mind all the time waits.
	west.rotation.Announced("south", old, chain(eastCA))
	for i := range 9 {
		west.rotation.Announced("east", []string{add(next), old}[i%2], chain(eastCA))
		want := [][]string{prints(eastCA, next), prints(eastCA)}[i%2]
		west.within("judged", func() bool {
			return slices.Equal(west.roots("east"), want) || west.shows("east").GetRefused() == rotation.Often
		})
		if west.shows("east").GetRefused() == rotation.Often {
			return
		}
	}
	t.Error("nine changes at once were taken")
}

// A replica shows the sidecars of all replicas, and names one that does not answer: a rotation waits
// for it.
func TestARotationSeesTheSidecarsOfAllReplicas(t *testing.T) {
	t.Parallel()
	ca := identitytest.NewCA(t)
	a, b := twoReplicas(t, ca)
	countingAt(t, ca, checkout, 50001, a.resolver)
	countingAt(t, ca, orders, 50002, b.resolver)
	conn, err := grpc.NewClient("passthrough:///"+a.resolver, grpc.WithTransportCredentials(a.credentials(identity.CLIApp(""))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	shows := func() (replicas, sidecars, missing []string) {
		stream, err := v1alpha1.NewRotationClient(conn).Show(t.Context(), &v1alpha1.ShowRotationRequest{})
		for err == nil {
			var m *v1alpha1.ShowRotationResponse
			if m, err = stream.Recv(); m.GetCluster() != "" {
				replicas = append(replicas, m.GetReplica())
			}
			for _, s := range m.GetSidecars() {
				if slices.Equal(s.GetSignedBy(), prints(ca)) && s.GetUntilUnixMs() > s.GetFromUnixMs() {
					sidecars = append(sidecars, s.GetSidecar().GetApp().GetId())
				}
			}
			for _, one := range m.GetMissing() {
				missing = append(missing, one.GetAddress())
			}
		}
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		slices.Sort(sidecars)
		return replicas, sidecars, missing
	}
	serverstest.Await(t, "both replicas and their sidecars", func() bool {
		replicas, sidecars, missing := shows()
		return slices.Equal(replicas, []string{"a", "b"}) && slices.Equal(sidecars, []string{checkout.ID, orders.ID}) && len(missing) == 0
	})
	b.end(syscall.SIGKILL)
	serverstest.Await(t, "the replica that is missing", func() bool {
		replicas, _, missing := shows()
		return slices.Equal(replicas, []string{"a"}) && slices.Equal(missing, []string{b.resolver})
	})
}
