package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/identity"
)

// Faults of whole services are found in resolver-service; these take a server that fails in its
// own way, or time.
func TestFactsHaveNames(t *testing.T) {
	now := time.Now()
	ms := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	healthy := func() *Facts {
		return &Facts{
			Now:      now,
			Status:   &v1alpha1.StatusResponse{Cluster: "west", Identity: "spiffe://public/ns/isthmus-system/isthmus-west", Store: &v1alpha1.StoreStatus{Name: "consul", Ready: true}},
			MayWrite: func(context.Context) error { return nil },
			Prober:   NewProber(noIdentity(t), "", "isthmus.internal"),
		}
	}
	for _, c := range []struct {
		name  string
		wrong func(*Facts)
		want  string // "" for nothing
	}{
		{"all is well", func(*Facts) {}, ""},
		{"the store is away", func(f *Facts) {
			f.Status.Store.Error, f.Status.Store.FailingUnixMs = "store consul: connection refused", ms(-time.Minute)
		}, "store fail service west"},
		{"the store was not read", func(f *Facts) { f.Status.Store.Ready = false }, "store fail service west"},
		{"the store denies writes", func(f *Facts) {
			f.MayWrite = func(context.Context) error { return fmt.Errorf("put: %w", configstore.ErrDenied) }
		}, "store-writes warn service west"},
		{"a full disk", func(f *Facts) {
			f.Status.Problems = []*v1alpha1.Problem{{Check: Disk, Name: "/data", What: "0 kB are free; make room"}}
		}, "disk warn service /data"},
		{"nobody can tell about writes", func(f *Facts) { f.MayWrite = func(context.Context) error { return errors.New("timeout") } }, "store-writes warn service west"},
		{"an object can't be used", func(f *Facts) {
			f.Status.Refused = []*v1alpha1.RefusedObject{{Source: "shop.yaml:3", Error: "no such field; leave it out"}}
		}, "objects fail object shop.yaml:3"},
		{"a source is away", func(f *Facts) {
			f.Status.Sources = []*v1alpha1.SourceStatus{{Name: "etcd", Error: "connection refused"}}
		}, "sources fail source etcd"},
		{"entries of a source can't be used", func(f *Facts) {
			f.Status.Sources = []*v1alpha1.SourceStatus{{Name: "etcd", Ready: true, RefusedCount: 200, Refused: []*v1alpha1.RefusedObject{{}}}}
		}, "sources warn source etcd"},
		{"a DNS server is away", func(f *Facts) {
			f.Status.Dns = &v1alpha1.DNSStatus{Upstreams: []*v1alpha1.DNSUpstream{{Address: "192.0.2.1:53"}}}
		}, "dns-upstreams warn service 192.0.2.1:53"},
		{"pods can't resolve the zone", func(f *Facts) { f.Zone = func(context.Context) error { return errors.New("no such host") } }, "dns-zone warn service west"},
		{"no identity", func(f *Facts) { f.Status.Identity, f.Status.IdentityError = "", "sentry: refused" }, "identity fail service west"},
		{"no renewal", func(f *Facts) { f.Status.IdentityError = "sentry: refused" }, "identity warn service west"},
		{"a certificate has expired", func(f *Facts) {
			f.Status.Trust = []*v1alpha1.TrustStatus{{Use: identity.PeerRoot, Cluster: "east", NotBeforeUnixMs: ms(-time.Hour), NotAfterUnixMs: ms(-time.Minute)}}
		}, "certificates fail certificate peer root east"},
		{"a peer's root can't be read", func(f *Facts) {
			f.Status.Trust = []*v1alpha1.TrustStatus{{Use: identity.PeerRoot, Cluster: "east", Error: "no PEM; write PEM"}}
		}, "certificates fail certificate peer root east"},
		{"a link is damped", func(f *Facts) {
			f.Status.Peers = []*v1alpha1.PeerStatus{{Cluster: "east", State: "damped", Hears: "connected"}}
		}, "peer-link fail peer east"},
		{"sidecars don't reach a peer", func(f *Facts) {
			f.Status.Peers = []*v1alpha1.PeerStatus{{Cluster: "east", State: "connected", Hears: "connected", UnreachedBy: 3, Callers: 3}}
		}, "peer-link fail peer east"},
		{"a replica is away", func(f *Facts) {
			f.Status.MissingReplicas = []*v1alpha1.MissingReplica{{Address: "r2:7400", Why: "connection refused"}, {Why: "unknown; write them down"}}
		}, "replicas warn service r2:7400\nreplicas warn service west"},
		{"another replica hears a peer", func(f *Facts) {
			f.Status.Peers = []*v1alpha1.PeerStatus{{Cluster: "east", State: "stale", HeardBy: []string{"r2"}}}
		}, "peer-link fail peer east\npeer-elsewhere fail peer east"},
		{"a peer does not hear us", func(f *Facts) {
			f.Status.Peers = []*v1alpha1.PeerStatus{{Cluster: "east", State: "connected", Hears: "stale"}}
		}, "peer-one-way warn peer east"},
		{"a peer introduces what can't be taken", func(f *Facts) {
			f.Status.Peers = []*v1alpha1.PeerStatus{{Cluster: "hub", State: "connected", Introduces: &v1alpha1.IntroducerStatus{
				Told: 3, Taken: 1, Refused: 1, Differing: 1, Problems: []*v1alpha1.IntroductionProblem{{Cluster: "east", Why: "brings roots"}, {Cluster: "north", Differs: true}}, Over: 2,
			}}}
		}, "peer-introductions warn peer hub\npeer-introductions warn peer hub\npeer-introductions warn peer hub"},
		{"a peer introduces others", func(f *Facts) {
			f.Status.Peers = []*v1alpha1.PeerStatus{{Cluster: "hub", State: "connected", Introduces: &v1alpha1.IntroducerStatus{Told: 3, Taken: 1, NotAccepted: 1, Outranked: 1}}}
		}, ""},
		{"without mTLS a peer has another name", func(f *Facts) {
			f.Status.Peers = []*v1alpha1.PeerStatus{{Cluster: "east", State: "connecting", Error: wrongName, Gateways: nil}}
		}, "peer-name fail peer east\npeer-link fail peer east"},
		{"a sidecar of another release", func(f *Facts) {
			f.Status.Version, f.Sidecars = "v1.4.0", []Sidecar{{SidecarState: &v1alpha1.SidecarState{App: &v1alpha1.App{Namespace: "shop", Id: "cart"}, Version: "1.2.0", Address: "10.0.0.1:1"}}}
		}, "versions warn sidecar shop/cart 10.0.0.1:1"},
		{"actors without a bridge", func(f *Facts) {
			f.Bridges = []*v1alpha1.AppState{{App: &v1alpha1.App{Namespace: "shop", Id: "isthmus-actors-west"}}, {App: &v1alpha1.App{Namespace: "mall", Id: "isthmus-actors-west"}, Ready: 2}}
		}, "actors-bridge fail namespace shop"},
		{"a sidecar of the release before", func(f *Facts) {
			f.Status.Version, f.Sidecars = "v1.4.0", []Sidecar{{SidecarState: &v1alpha1.SidecarState{Version: "1.3.0"}}}
		}, ""},
		{"a daprd of an old release", func(f *Facts) {
			f.Sidecars = []Sidecar{
				{SidecarState: &v1alpha1.SidecarState{Runtime: "1.17.9"}}, {SidecarState: &v1alpha1.SidecarState{Runtime: "1.18.2"}},
				{SidecarState: &v1alpha1.SidecarState{App: &v1alpha1.App{Namespace: "shop", Id: "cart"}, Runtime: "1.16.1", Address: "10.0.0.1:1"}},
			}
		}, "versions warn sidecar shop/cart 10.0.0.1:1"},
		{"the account lacks a right, and so the store fails", func(f *Facts) {
			f.Status.Store.Ready = false
			f.Lacks = []Lack{{"isthmus-reader", []apiserver.Right{{Verb: "list", Group: "isthmus.dev", Resource: "clusters"}, {Verb: "list", Group: "isthmus.dev", Resource: "appexports"}}}}
		}, "rights fail role isthmus-reader list"},
		{"the account lacks the right to statuses", func(f *Facts) {
			f.Lacks = []Lack{{"isthmus-status", []apiserver.Right{{Verb: "patch", Group: "isthmus.dev", Resource: "clusters/status"}}}}
		}, "rights warn role isthmus-status patch"},
		{"the rights can't be asked for", func(f *Facts) { f.LacksErr = errors.New("timeout") }, "rights warn service west"},
		{"objects have no definition, and so the store fails", func(f *Facts) {
			f.Status.Store.Ready, f.Definitions = false, &Definitions{Missing: []string{"clusters.isthmus.dev"}}
		}, "crds fail service west"},
		{"definitions of another release", func(f *Facts) {
			f.Definitions = &Definitions{Lacking: []string{"Cluster.spec.trust"}, Unknown: []string{"Cluster.spec.colour"}}
		}, "crds warn service west\ncrds warn service west"},
		{"definitions that can't be read", func(f *Facts) { f.Definitions = &Definitions{Err: errors.New("timeout")} }, "crds warn service west"},
		{"a Kubernetes store that kubectl writes", func(f *Facts) {
			f.Status.Store.Name, f.MayWrite = "kubernetes", func(context.Context) error { return configstore.ErrReadOnly }
		}, ""},
		{"roots that are followed", ownAndBundle([]string{"aa"}, []string{"aa"}, []string{"aa"}, nil), ""},
		{"roots that are no longer Sentry's", ownAndBundle([]string{"aa"}, []string{"aa"}, []string{"bb"}, nil), "own-roots fail service west"},
		{"roots that can't be followed", ownAndBundle([]string{"aa"}, []string{"aa"}, nil, errors.New("it was deleted")), "own-roots warn service west"},
		{"a root that nobody names", ownAndBundle([]string{"aa", "bb"}, []string{"aa"}, []string{"bb", "aa"}, nil), "own-roots warn service west"},
		{"a peer's root", func(f *Facts) {
			ownAndBundle([]string{"aa", "bb"}, []string{"aa"}, []string{"bb", "aa"}, nil)(f)
			f.Status.Trust = append(f.Status.Trust, &v1alpha1.TrustStatus{Use: identity.PeerRoot, Cluster: "east", Fingerprint: "bb", NotBeforeUnixMs: ms(-time.Hour), NotAfterUnixMs: ms(9000 * time.Hour)})
		}, ""},
		{"builds that are no release", func(f *Facts) {
			f.Status.Version, f.Sidecars = "v1.4.0", []Sidecar{{SidecarState: &v1alpha1.SidecarState{Version: "79cf35a"}}, {SidecarState: &v1alpha1.SidecarState{Version: "v1.4.9"}}, {SidecarState: &v1alpha1.SidecarState{}}}
		}, ""},
		{"an analysis", func(f *Facts) {
			f.Findings = []*v1alpha1.Finding{
				{Check: "own-listener", Level: "warning", Key: &v1alpha1.ObjectKey{Kind: "Cluster", Name: "east"}},
				{Check: "covered", Level: "note", Key: &v1alpha1.ObjectKey{Kind: "AppExport", Namespace: "shop", Name: "cart"}},
			}
		}, "analysis warn object Cluster east"},
	} {
		f := healthy()
		c.wrong(f)
		if got := strings.Join(faultsOf(t, f), "\n"); got != c.want {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}

const wrongName = `the Cluster object is named "east", but its gateways lead to cluster "north"; correct metadata.name or spec.gateways`

func noIdentity(t *testing.T) *identity.Source {
	t.Helper()
	s, err := identity.New(identity.Config{Insecure: true}, catalog.App{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func faultsOf(t *testing.T, f *Facts) (faults []string) {
	t.Helper()
	var all []Result
	if err := Run(t.Context(), f, func(results []Result) error { all = append(all, results...); return nil }); err != nil {
		t.Fatal(err)
	}
	sorted := Messages(all)
	Sort(sorted)
	for _, r := range sorted {
		if r.GetLevel() == string(OK) {
			continue
		}
		faults = append(faults, strings.TrimSpace(fmt.Sprint(r.GetCheck(), " ", r.GetLevel(), " ", r.GetKind(), " ", r.GetName())))
		if r.GetFound() == "" && r.GetKind() != ofObject {
			t.Errorf("%s does not say what was found", r.GetCheck())
		}
	}
	return faults
}

func TestManyFaultsOfOneCheckAreCut(t *testing.T) {
	f := &Facts{Now: time.Now(), Status: &v1alpha1.StatusResponse{Cluster: "west"}}
	for range 500 {
		f.Status.Refused = append(f.Status.Refused, &v1alpha1.RefusedObject{Source: "shop.yaml:3", Error: "bad; mend it"})
	}
	all := f.complete("objects", refusedObjects(f))
	if last := all[len(all)-1]; len(all) != most+1 || last.Found != "480 more are like the 20 that are listed" || last.Check != "objects" {
		t.Errorf("%d results, the last %+v", len(all), last)
	}
}

func TestTheWayOfACommand(t *testing.T) {
	for _, c := range []struct {
		name string
		way  Way
		want string
	}{
		{"all is well", Way{Version: "v1.4.0", ServiceVersion: "v1.4.2", Ahead: -50 * time.Second}, ""},
		{"nobody listens", Way{Err: errors.New("resolver service at x not reached: connection refused; is isthmus serve running there?")}, "service-reachable fail"},
		{"another root", Way{Err: errors.New("resolver service at x not reached: authentication handshake failed: identity: peer: signed by unknown authority; check ca.pem")}, "service-trust fail"},
		{"an own certificate that can't be read", Way{Err: errors.New("open cert.pem: no such file"), Own: true}, "service-trust fail"},
		{"no operator", Way{Err: errors.New("refused: Status is for operators"), Denied: true}, "operator fail"},
		{"an older service", Way{Err: errors.New("what answers at x is another version"), Old: true}, "versions fail"},
		{"Sentry is away", Way{BySentry: true, Err: errors.New("sentry"), Sentry: errors.New("sentry x: connection refused")}, "sentry fail"},
		{"another Sentry", Way{BySentry: true, Err: errors.New("sentry"), Sentry: fmt.Errorf("sentry x: %w: no", identity.ErrOtherSentry)}, "sentry-trust fail"},
		{"a clock that is wrong", Way{Ahead: 2 * time.Minute}, "clock warn"},
		{"an answer that took long", Way{Ahead: 2 * time.Minute, Unsure: 90 * time.Second}, ""},
		{"another release", Way{Version: "v1.4.0", ServiceVersion: "v1.6.0"}, "versions warn"},
		{"the next release", Way{Version: "v1.4.0", ServiceVersion: "v1.5.0"}, ""},
	} {
		var faults []string
		for _, r := range Command(&c.way) {
			if r.Level != OK {
				faults = append(faults, r.Check+" "+string(r.Level))
			}
		}
		if got := strings.Join(faults, ", "); got != c.want {
			t.Errorf("%s: found %q, want %q", c.name, got, c.want)
		}
	}
}

// ownAndBundle has a service use some roots, of which some sign its certificate, and a ConfigMap with
// others.
func ownAndBundle(own, vouching, bundle []string, err error) func(*Facts) {
	return func(f *Facts) {
		for _, root := range own {
			f.Status.Trust = append(f.Status.Trust, &v1alpha1.TrustStatus{Use: identity.OwnRoot, Fingerprint: root, NotBeforeUnixMs: f.Now.Add(-time.Hour).UnixMilli(), NotAfterUnixMs: f.Now.Add(9000 * time.Hour).UnixMilli()})
		}
		f.Vouching = vouching
		f.Bundle = func(context.Context) (string, []string, error) {
			return "ConfigMap dapr-system/dapr-trust-bundle", bundle, err
		}
	}
}
