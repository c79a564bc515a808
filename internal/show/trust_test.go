package show

import (
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/identity"
)

func TestWhatExpiresIsSaidInTime(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	const day = 24 * time.Hour
	for _, c := range []struct {
		what, use  string
		begun, end time.Duration // from now
		err        string
		want       identity.CertificateState
	}{
		{"a root with time", "own root", -day, 31 * day, "", identity.Good},
		{"a root in its last days", "own root", -300 * day, 29 * day, "", identity.ExpiresSoon},
		{"a peer's root in its last days", "peer root", -300 * day, 29 * day, "", identity.ExpiresSoon},
		{"a root that is over", "peer root", -300 * day, -time.Second, "", identity.Expired},
		{"a root of tomorrow", "peer root", day, 300 * day, "", identity.Early},
		{"a certificate in the middle of its life", "own certificate", -12 * time.Hour, 12 * time.Hour, "", identity.Good},
		{"one that was not renewed", "own certificate", -17 * time.Hour, 7 * time.Hour, "", identity.ExpiresSoon},
		{"one whose renewal fails", "own certificate", -12 * time.Hour, 12 * time.Hour, "sentry is away", identity.Good},
		{"one for outsiders that can't be renewed", "dns certificate", -45 * day, 45 * day, "no PEM", identity.Good},
		{"one for outsiders in its last days", "consul certificate", -300 * day, 29 * day, "", identity.ExpiresSoon},
		{"one for outsiders of a year, in its last third", "consul certificate", -300 * day, 60 * day, "", identity.Good},
		{"a peer's that was refused", "peer certificate", -12 * time.Hour, 12 * time.Hour, "signed by none", identity.Refused},
		{"a peer's that was refused and is over", "peer certificate", -12 * time.Hour, -time.Hour, "signed by none", identity.Expired},
	} {
		got := CertificateState(&v1alpha1.TrustStatus{
			Use: c.use, Error: c.err, NotBeforeUnixMs: now.Add(c.begun).UnixMilli(), NotAfterUnixMs: now.Add(c.end).UnixMilli(),
		}, now)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func TestCertificatesForOutsidersAreInTheStatus(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	var b strings.Builder
	err := Status(&b, &v1alpha1.StatusResponse{Cluster: "west", Store: &v1alpha1.StoreStatus{Name: "embedded"}, Trust: []*v1alpha1.TrustStatus{
		{Use: "dns certificate", Subject: "CN=well", NotBeforeUnixMs: at(-time.Hour), NotAfterUnixMs: at(time.Hour)},
		{Use: "dns certificate", Subject: "CN=dns", NotBeforeUnixMs: at(-time.Hour), NotAfterUnixMs: at(time.Hour), Error: "no PEM"},
		{Use: "consul certificate", Subject: "CN=consul", NotBeforeUnixMs: at(-time.Hour), NotAfterUnixMs: at(-time.Minute), Error: "no key"},
	}}, false, now)
	for _, want := range []string{
		"\n  dns certificate: the newest can't be used; the one before stands: no PEM\n",
		"\n  consul certificate: CN=consul expired at 2027-01-15T07:59:00Z; write a new one to the files that consul.tls names; those that are there can't be used: no key\n",
	} {
		if !strings.Contains(b.String(), want) || err != nil {
			t.Errorf("no %q in\n%s(%v)", want, b.String(), err)
		}
	}
	if strings.Contains(b.String(), "CN=well") {
		t.Errorf("one that is well is told of:\n%s", b.String())
	}
}

func TestTrustIsReadable(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	at := func(d time.Duration) int64 { return now.Add(d).UnixMilli() }
	print := strings.Repeat("0123456789abcdef", 4)
	all := Certificates(&v1alpha1.StatusResponse{Trust: []*v1alpha1.TrustStatus{
		{Use: "own certificate", Subject: "spiffe://public/ns/isthmus-system/isthmus-west", NotBeforeUnixMs: at(-time.Hour), NotAfterUnixMs: at(23 * time.Hour), Fingerprint: print},
		{Use: "own root", Subject: "CN=west", NotBeforeUnixMs: at(-time.Hour), NotAfterUnixMs: at(8760 * time.Hour), Fingerprint: print},
		{Use: "peer root", Cluster: "east", Subject: "CN=east", TrustDomain: "east.example", NotBeforeUnixMs: at(-time.Hour), NotAfterUnixMs: at(-time.Minute), Fingerprint: print},
		{Use: "peer certificate", Cluster: "east", Subject: "spiffe://east.example/ns/isthmus-system/isthmus-east", NotBeforeUnixMs: at(-time.Hour), NotAfterUnixMs: at(23 * time.Hour), Fingerprint: print, Error: "it is too old"},
		{Use: "peer root", Cluster: "north", Subject: "own roots"},
		{Use: "peer root", Cluster: "south", Error: "Cluster south: spec.trust.roots: not PEM"},
	}}, now)
	var b strings.Builder
	if err := Trust(&b, "west", all, now); err != nil {
		t.Fatal(err)
	}
	want := `USE                CLUSTER   SUBJECT                                                EXPIRES       STATE     SHA-256
own certificate              spiffe://public/ns/isthmus-system/isthmus-west         in 23h0m0s    good      0123456789abcdef…
own root                     CN=west                                                in 365 days   good      0123456789abcdef…
peer root          east      CN=east (for east.example)                             1m0s ago      expired   0123456789abcdef…
peer certificate   east      spiffe://east.example/ns/isthmus-system/isthmus-east   in 23h0m0s    refused   0123456789abcdef…
peer root          north     own roots                                                            good
peer root          south                                                                          refused

peer root east: CN=east expired at 2027-01-15T07:59:00Z; add east's new root to Cluster east, spec.trust.roots, and take this one out once nothing is signed by it

peer certificate east: it is too old

peer root south: Cluster south: spec.trust.roots: not PEM
`
	if b.String() != want {
		t.Errorf("got\n%s", b.String())
	}
	if !Expired(all) || Expired(all[:2]) {
		t.Error("expired is told wrong")
	}
}

func TestAPeerIsShownWhole(t *testing.T) {
	now := time.UnixMilli(1_000_000_000)
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	s := &v1alpha1.StatusResponse{
		Cluster: "west", Replica: "west-1",
		Sources: []*v1alpha1.SourceStatus{
			{Name: "kubernetes", Ready: true, Instances: 12},
			{Name: "consul", Ready: true, Instances: 3, Error: "connection refused", FailingUnixMs: ago(12 * time.Second),
				Refused: []*v1alpha1.RefusedObject{{Source: "service orders, instance 7", Error: "no address"}}, RefusedCount: 120},
		},
		Peers: []*v1alpha1.PeerStatus{{
			Cluster: "east", State: "damped", SinceUnixMs: ago(30 * time.Second), LastWordUnixMs: ago(200 * time.Millisecond),
			Exports: 12, Ready: 10, StaleAfterMs: 10_000, LeaseLeftMs: 9_700, Lapses: 3, DampedUntilUnixMs: ago(-40 * time.Second), Revision: 55,
			Hears: "connected", AskedBy: 2, RecentLapses: []*v1alpha1.Lapse{
				{AtUnixMs: ago(2 * time.Minute), BackUnixMs: ago(115 * time.Second)},
				{AtUnixMs: ago(time.Minute), Why: "its gateways refuse connections"},
			},
			Error: "handshake failed: its root is unknown",
			Gateways: []*v1alpha1.GatewayStatus{
				{Address: "10.0.0.1:15443", State: "connected", SinceUnixMs: ago(time.Minute)},
				{Address: "10.0.0.2:15443", State: "silent", SinceUnixMs: ago(time.Minute), Error: "no answer"},
				{Address: "10.0.0.3:15443", State: "refused", SinceUnixMs: ago(time.Minute), Error: "its root is unknown"},
			},
			Refused: []*v1alpha1.RefusedObject{{Source: "shop/orders", Error: "too many callers"}},
		}},
		Trust: []*v1alpha1.TrustStatus{{Use: "peer root", Cluster: "east", Subject: "own roots"}, {Use: "own root", Subject: "CN=west"}},
	}
	var b strings.Builder
	if err := Status(&b, s, true, now); err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(b.String(), "objects     0, 0 refused\n")
	want := `
SOURCE       STATE           INSTANCES   REFUSED
kubernetes   ready           12          0
consul       stale for 12s   3           120

source consul: refused service orders, instance 7: no address
source consul: 119 more, which are named once there are fewer

PEER   STATE    FOR   LAST WORD   LEASE              EXPORTS   READY   HEARS US    GATEWAYS                           LAPSES   LAST LAPSE
east   damped   30s   200ms ago   9.7s, damped 40s   12        10      connected   1 connected, 1 silent, 1 refused   3        1m0s ago

peer east: 1 exports refused; isthmus status --peer east names them

peer east
  state       damped for 30s
  error       handshake failed: its root is unknown
  last word   200ms ago
  revision    55
  lease       9.7s of 10s
  lapses      3 since the service started
              at 1970-01-12T13:45:40Z, not back yet: its gateways refuse connections
              at 1970-01-12T13:44:40Z, back at 1970-01-12T13:44:45Z, 5s later
  damped      for up to another 40s: its lease ran out too often lately; until then, callers use it only where nothing else is ready
  exports     12 to this cluster, 10 of them ready
  hears us    connected
  asks us     by 2 streams
  gateway 10.0.0.1:15443: connected for 1m0s
  gateway 10.0.0.2:15443: silent for 1m0s: no answer
  gateway 10.0.0.3:15443: refused for 1m0s
  peer root: own roots
  refused shop/orders: too many callers
`
	if got != want {
		t.Errorf("got\n%s", got)
	}
	if !strings.Contains(b.String(), "replica     west-1\n") {
		t.Error("no replica")
	}
	if err := Peer(&b, s, "north", now); err == nil {
		t.Error("a peer that there is not")
	}
}

func TestAnExplanationShowsTheReadinessBehindARoute(t *testing.T) {
	var b strings.Builder
	err := Explain(&b, "shop/checkout", "shop/orders", &v1alpha1.Decision{
		Outcome: "ok", Routes: []*v1alpha1.RouteDecision{
			{Cluster: "west", Weight: 1, Ready: 2, Draining: 1, Taken: true, Reason: "2 ready"},
			{Cluster: "east", Priority: 1, Weight: 1, Ready: 5, Shards: 5, Ramp: 25, Zones: "a: 2, b: 3", Reason: "5 ready", Peer: "connected for 3s", Unnamed: "by 203.0.113.8:50002"},
		},
	})
	_, got, _ := strings.Cut(b.String(), "revision   0\n")
	want := `
  ROUTE   PRIORITY   WEIGHT   READY   DRAINING   SHARDS   RAMP   ZONES                WHY
  west    0          1        2       1                                       taken   2 ready
  east    1          1        5                  5        25 %   a: 2, b: 3           5 ready

  peer east: connected for 3s
  callers without a server name to east: by 203.0.113.8:50002
`
	if got != want || err != nil {
		t.Errorf("got\n%s(%v)", b.String(), err)
	}
}

// TestAnInsecureServiceIsSaidToBe also where it shows a certificate to those who ask by DNS.
func TestAnInsecureServiceIsSaidToBe(t *testing.T) {
	for _, all := range [][]*v1alpha1.TrustStatus{nil, {{Use: "dns certificate", Subject: "CN=ns.west.example", State: "good"}}} {
		var b strings.Builder
		if err := Trust(&b, "west", all, noon); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.HasPrefix(got, "cluster west has no certificate: ") || strings.Contains(got, "CN=ns.west.example") != (all != nil) {
			t.Errorf("%d certificates: %s", len(all), got)
		}
	}
}
