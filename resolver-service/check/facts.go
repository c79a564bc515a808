package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects/analysis"
)

// service is a fault of the service itself.
func (f *Facts) service(level Level, found, fix string) []Result {
	return []Result{{Level: level, Kind: ofService, Name: f.Status.GetCluster(), Found: found, Fix: fix}}
}

// ownIdentity finds a service without a certificate, or one that is not renewed.
func ownIdentity(f *Facts) []Result {
	text := f.Status.GetIdentityError()
	if text == "" || f.lacks(trustBundleRole) {
		return nil
	}
	level := Warn
	if f.Status.GetIdentity() == "" {
		level = Fail
	}
	return f.service(level, text, "correct identity in isthmus.yaml; the checks sentry and certificates may say more")
}

// certificates finds those that have expired, soon will, or can't be used. The error of the own
// one is about its renewal, which ownIdentity has.
func certificates(f *Facts) (all []Result) {
	for _, m := range f.Status.GetTrust() {
		t := show.TrustedOf(m)
		state, level := t.State(f.Now), Warn
		switch {
		case state == identity.Good && (t.Err == nil || t.Use == identity.OwnCertificate):
			continue
		case state == identity.Refused && t.Use == identity.PeerCertificate:
			continue // the checks of its gateways say more
		case t.Use == identity.ConfiguredFile:
		case state == identity.Expired, state == identity.Refused:
			level = Fail
		}
		found, fix := t.Advice(state)
		if fix == "" {
			found, fix = split(found)
		}
		all = append(all, Result{Level: level, Kind: ofCertificate, Name: strings.TrimSpace(t.Use + " " + t.Cluster), Found: found, Fix: fix})
	}
	return all
}

// maxSkew is by how much clocks may differ. Certificates that were just made count on it.
const maxSkew = time.Minute

// clocks finds peers whose clocks differ from the service's.
func clocks(f *Facts) (all []Result) {
	for _, p := range f.Status.GetPeers() {
		ahead := time.Duration(p.GetClockAheadMs()) * time.Millisecond
		if ahead.Abs() > maxSkew {
			all = append(all, Result{Level: Warn, Kind: ofPeer, Name: p.GetCluster(), Found: "the clock of its service is " + skew(ahead) + " this one's", Fix: setClocks})
		}
	}
	return all
}

const setClocks = "set both clocks, by NTP for example: with wrong ones, certificates count too late or too long"

// skew says by how much a clock differs.
func skew(ahead time.Duration) string {
	if ahead < 0 {
		return (-ahead).Round(time.Second).String() + " behind"
	}
	return ahead.Round(time.Second).String() + " ahead of"
}

// bridges finds namespaces whose actors are called across clusters, and that have no bridge.
func bridges(f *Facts) (all []Result) {
	for _, b := range f.Bridges {
		if b.GetReady() == 0 {
			all = append(all, Result{Level: Fail, Kind: ofNamespace, Name: b.GetApp().GetNamespace(),
				Found: fmt.Sprintf("objects lead calls of actors through the bridge %s, and none is ready: these calls fail", appName(b.GetApp())),
				Fix:   "run isthmus actors for the namespace, in the chart by actors.namespaces; if it runs, its /readyz says why it is not ready"})
		}
	}
	return all
}

var releases = regexp.MustCompile(`^v?(\d+)\.(\d+)\.\d+`)

// release is the part of a version that decides about compatibility; !ok for a build that is no
// release.
func release(version string) (major, minor int, ok bool) {
	m := releases.FindStringSubmatch(version)
	if m == nil {
		return 0, 0, false
	}
	major, errMajor := strconv.Atoi(m[1])
	minor, errMinor := strconv.Atoi(m[2])
	return major, minor, errMajor == nil && errMinor == nil && major+minor > 0
}

// maxApart is by how many minor releases versions may differ: upgrades go on with one.
const maxApart = 1

// apart tells whether two versions are too far from each other.
func apart(a, b string) bool {
	majorA, minorA, okA := release(a)
	majorB, minorB, okB := release(b)
	return okA && okB && (majorA != majorB || max(minorA-minorB, minorB-minorA) > maxApart)
}

// versions finds peers and sidecars of releases that are too far from the service's, and runtimes of
// Dapr that are too far from the newest.
func versions(f *Facts) (all []Result) {
	own := f.Status.GetVersion()
	add := func(kind, name, version string) {
		all = append(all, Result{Level: Warn, Kind: kind, Name: name, Found: fmt.Sprintf("it is of version %s, and this service of %s", version, own), Fix: "upgrade the older one: they may differ by one minor release"})
	}
	for _, p := range f.Status.GetPeers() {
		if apart(own, p.GetVersion()) {
			add(ofPeer, p.GetCluster(), p.GetVersion())
		}
	}
	newest := ""
	for _, s := range f.Sidecars {
		if apart(own, s.GetVersion()) {
			add(ofSidecar, sidecarName(s), s.GetVersion())
		}
		if newer(s.GetRuntime(), newest) {
			newest = s.GetRuntime()
		}
	}
	for _, s := range f.Sidecars {
		if apart(newest, s.GetRuntime()) {
			all = append(all, Result{Level: Warn, Kind: ofSidecar, Name: sidecarName(s), Found: fmt.Sprintf("its daprd is %s, and others are %s", s.GetRuntime(), newest), Fix: "restart its pod with the newer sidecar"})
		}
	}
	return all
}

// newer tells whether a version is of a later release than another.
func newer(a, b string) bool {
	majorA, minorA, okA := release(a)
	majorB, minorB, okB := release(b)
	return okA && (!okB || majorA > majorB || majorA == majorB && minorA > minorB)
}

func appName(a *v1alpha1.App) string { return a.GetNamespace() + "/" + a.GetId() }

func sidecarName(s Sidecar) string {
	return strings.TrimSpace(appName(s.GetApp()) + " " + s.GetAddress())
}

// store finds a store that can't be read.
func store(f *Facts) []Result {
	name := f.Status.GetStore().GetName()
	if f.lacks(readerRole) || f.Definitions != nil && len(f.Definitions.Missing) > 0 {
		return nil
	}
	if away := show.Away(f.Status, f.Now); away != "" {
		return f.service(Fail, "store "+name+" is "+away, "see that its server runs, and that its address in isthmus.yaml is right")
	}
	if !f.Status.GetStore().GetReady() {
		return f.service(Fail, "store "+name+" was not read yet", "wait a moment, then see the service's log")
	}
	return nil
}

// storeWrites finds a store that this service may read and not write.
func storeWrites(ctx context.Context, f *Facts) []Result {
	err := f.MayWrite(ctx)
	switch name := f.Status.GetStore().GetName(); {
	case name == "kubernetes" && errors.Is(err, configstore.ErrReadOnly):
		return nil // kubectl and GitOps write; half of the role is a finding of rights
	case errors.Is(err, configstore.ErrDenied), errors.Is(err, configstore.ErrReadOnly):
		return f.service(Warn, fmt.Sprintf("store %s can be read, and not written: %v", name, err),
			"give the service's credentials the right to write, or write objects in the store's own way")
	case err != nil:
		return f.service(Warn, fmt.Sprintf("store %s: can't tell whether it may be written: %v", name, err), "see isthmus store check")
	}
	return nil
}

// The checks of what the service finds by itself.
const (
	StoreServer   = "store-server"
	StoreIdentity = "store-identity"
	Disk          = "disk"
)

// problems finds what the service has found for one check.
func problems(check string) func(*Facts) []Result {
	return func(f *Facts) (all []Result) {
		for _, p := range f.Status.GetProblems() {
			if p.GetCheck() == check {
				found, fix := split(p.GetWhat())
				all = append(all, Result{Level: Warn, Kind: ofService, Name: p.GetName(), Found: found, Fix: fix})
			}
		}
		return all
	}
}

// refusedObjects finds objects that can't be used.
func refusedObjects(f *Facts) (all []Result) {
	for _, r := range f.Status.GetRefused() {
		if f.lacks(translateRole) && strings.Contains(r.GetError(), translateRole) {
			continue
		}
		found, fix := split(r.GetError())
		all = append(all, Result{Level: Fail, Kind: ofObject, Name: r.GetSource(), Found: found, Fix: fix})
	}
	return all
}

// missingReplicas finds replicas that do not tell of their sidecars' calls.
func missingReplicas(f *Facts) (all []Result) {
	for _, m := range f.Status.GetMissingReplicas() {
		r := Result{Level: Warn, Kind: ofService, Name: cmp.Or(m.GetAddress(), f.Status.GetCluster())}
		if r.Found, r.Fix = split(m.GetWhy()); m.GetAddress() != "" {
			r.Found, r.Fix = "this replica does not answer another one, so nothing is known of the calls of its sidecars: "+m.GetWhy(), "see isthmus status there, and replicas.addresses in isthmus.yaml"
		}
		all = append(all, r)
	}
	return all
}

// sources finds sources of instances that can't be read.
func sources(f *Facts) (all []Result) {
	for _, s := range f.Status.GetSources() {
		r := Result{Level: Fail, Kind: ofSource, Name: s.GetName()}
		switch {
		case s.GetName() == "kubernetes" && f.lacks(instancesRole, podsRole), s.GetName() == "static" && f.lacks(readerRole):
			continue
		case s.GetError() != "":
			r.Found, r.Fix = split(s.GetError())
		case !s.GetReady():
			r.Found, r.Fix = "it was not read yet", "wait a moment, then see the service's log"
		case len(s.GetRefused()) > 0:
			r.Level, r.Found = Warn, fmt.Sprintf("%d entries can't be used", max(int(s.GetRefusedCount()), len(s.GetRefused())))
			r.Fix = "see isthmus status -v"
		default:
			continue
		}
		all = append(all, r)
	}
	return all
}

// upstreams finds DNS servers that do not answer.
func upstreams(f *Facts) (all []Result) {
	for _, u := range f.Status.GetDns().GetUpstreams() {
		if !u.GetUp() {
			all = append(all, Result{Level: Warn, Kind: ofService, Name: u.GetAddress(), Found: "this DNS server does not answer: " + u.GetError(), Fix: "correct dns.upstreams in isthmus.yaml, or start it"})
		}
	}
	return all
}

// zone finds a cluster whose pods can't resolve names of the zone.
func zone(ctx context.Context, f *Facts) []Result {
	if f.Zone == nil {
		return nil
	}
	if err := f.Zone(ctx); err != nil {
		return f.service(Warn, fmt.Sprintf("the resolver of this pod does not know the zone: %v", err),
			"give CoreDNS the block of docs/how-to/dns-on-kubernetes.md, or set dns.enabled=false in the values of the chart if only sidecars with Isthmus resolve names")
	}
	return nil
}

// peerNames finds a second service with a peer's name, and what [peerName] finds where there are no
// certificates.
func peerNames(f *Facts) (all []Result) {
	for _, p := range f.Status.GetPeers() {
		text := p.GetSecondService()
		if e := p.GetError(); f.Prober.Identity.Insecure() && (strings.Contains(e, "gateways lead to cluster") || strings.Contains(e, "both clusters are named")) {
			text = e
		}
		if text != "" {
			level := Fail
			if strings.Contains(text, "does not say who it is") {
				level = Warn
			}
			found, fix := split(text)
			all = append(all, Result{Level: level, Kind: ofPeer, Name: p.GetCluster(), Found: found, Fix: fix})
		}
	}
	return all
}

// lostTunnels finds clusters without the tunnels that one of the two is called by.
func lostTunnels(f *Facts) (all []Result) {
	for _, p := range f.Status.GetPeers() {
		t := p.GetTunnel()
		if t == nil || t.GetOpen() > 0 && t.GetError() == "" || p.GetState() == catalog.GuestAway {
			continue
		}
		r := Result{Level: Fail, Kind: ofPeer, Name: p.GetCluster(), Found: t.GetError(), Fix: "write gateway.internal into isthmus.yaml"}
		switch {
		case t.GetOpen() > 0:
		case t.GetMode() == catalog.TunnelAccept:
			r.Found = "no tunnel: it dials this cluster, and can't be called until it does; " + cmp.Or(t.GetError(), "it has never done so")
			r.Fix = "run isthmus check there; its Cluster object of this one needs gateways and tunnel: dial"
		default:
			r.Found = "no tunnel: it can't call this cluster; " + cmp.Or(t.GetError(), "it was never reached")
			r.Fix = "see the checks of its gateways, and that its Cluster object of this one has tunnel: accept"
		}
		all = append(all, r)
	}
	return all
}

// lostPeers finds peers that other replicas hear.
func lostPeers(f *Facts) (all []Result) {
	for _, p := range f.Status.GetPeers() {
		if by := p.GetHeardBy(); len(by) > 0 {
			all = append(all, Result{
				Level: Fail, Kind: ofPeer, Name: p.GetCluster(),
				Found: fmt.Sprintf("replica %s does not hear it, and %s does; sidecars are sent there", f.Status.GetReplica(), strings.Join(by, ", ")),
				Fix:   "see what stands between this replica's machine and the gateways: isthmus status --peer " + p.GetCluster(),
			})
		}
	}
	return all
}

// oneWay finds peers that follow nothing here, though apps are exported to them.
func oneWay(f *Facts) (all []Result) {
	for _, p := range f.Status.GetPeers() {
		r := Result{Level: Warn, Kind: ofPeer, Name: p.GetCluster()}
		exports := 0
		for _, a := range f.Exported {
			if Exported(a.GetExportedTo(), p.GetCluster()) {
				exports++
			}
		}
		switch {
		case p.GetState() != "connected" || catalog.PeerWell(p.GetHears()) || exports == 0 && p.GetHears() == "":
			continue
		case p.GetHears() == "":
			r.Found = fmt.Sprintf("one-way: no app there can call this cluster, and %d apps are exported to it", exports)
			r.Fix = fmt.Sprintf("write gateways into Cluster %s there, or take the exports back", f.Status.GetCluster())
		default:
			r.Found = fmt.Sprintf("one-way: it does not hear this cluster; its link is %s", p.GetHears())
			r.Fix = "run isthmus check there"
		}
		all = append(all, r)
	}
	return all
}

// mtls finds what is not encrypted.
func mtls(f *Facts) (all []Result) {
	if f.Status.GetIdentity() == "insecure" {
		all = f.service(Warn, "identity is insecure: nothing is encrypted and nobody is checked", "configure identity: sentry or identity: files in isthmus.yaml")
	}
	plain := map[string]int{}
	for _, s := range f.Sidecars {
		if s.GetPlainText() {
			plain[appName(s.GetApp())]++
		}
	}
	for _, app := range slices.Sorted(maps.Keys(plain)) {
		all = append(all, Result{Level: Warn, Kind: ofSidecar, Name: app, Found: fmt.Sprintf("sidecars without mTLS: %d; no gateway leads to them or from them", plain[app]),
			Fix: "start daprd with --enable-mtls, or set spec.mtls.enabled in its Configuration"})
	}
	return all
}

// Exported tells whether an app that is exported to some clusters is so to this one.
func Exported(to []string, cluster string) bool {
	return slices.Contains(to, cluster) || slices.Contains(to, "*")
}

// sidecarRoots finds sidecars that meet another cluster, and trust none of its roots. Isthmus passes
// their calls on untouched, so links are up all the same.
func sidecarRoots(f *Facts) (all []Result) {
	roots := map[string][]string{} // by cluster
	for _, t := range f.Status.GetTrust() {
		if t.GetUse() == identity.PeerRoot && t.GetFingerprint() != "" {
			roots[t.GetCluster()] = append(roots[t.GetCluster()], t.GetFingerprint())
		}
	}
	exported := map[string][]string{}
	for _, a := range f.Exported {
		exported[appName(a.GetApp())] = a.GetExportedTo()
	}
	for _, cluster := range slices.Sorted(maps.Keys(roots)) {
		lacks := map[string]int{} // by app
		for _, s := range f.Sidecars {
			if name := appName(s.GetApp()); identity.LacksRoots(s.GetTrustAnchors(), roots[cluster]) && (Exported(exported[name], cluster) || s.LeadsTo(cluster)) {
				lacks[name]++
			}
		}
		for _, app := range slices.Sorted(maps.Keys(lacks)) {
			all = append(all, Result{Level: Fail, Kind: ofSidecar, Name: app,
				Found: fmt.Sprintf("sidecars that trust no root of cluster %s: %d; calls between them and that cluster fail", cluster, lacks[app]),
				Fix:   fmt.Sprintf("add the roots that Cluster %s names to the trust anchors of Dapr's sidecars here, and restart these", cluster)})
		}
	}
	return all
}

// exportInstances finds exports of apps without a ready instance.
func exportInstances(f *Facts) (all []Result) {
	for _, a := range f.Exported {
		if a.GetReady() > 0 {
			continue
		}
		r := Result{Level: Warn, Kind: ofObject, Name: "AppExport " + appName(a.GetApp()), Found: "no instance of the app is ready here", Fix: "start the app, or see isthmus sidecars"}
		if a.GetDraining() > 0 {
			r.Found += fmt.Sprintf("; %d are draining", a.GetDraining())
		}
		for _, x := range f.Findings {
			if x.GetCheck() == analysis.ExportOfNothing && x.GetKey().GetNamespace() == a.GetApp().GetNamespace() && x.GetKey().GetName() == a.GetApp().GetId() {
				r.Found, r.Fix = x.GetWhat(), x.GetFix()
			}
		}
		all = append(all, r)
	}
	return all
}

// selectionExports finds selections of apps that no cluster exports to the caller. An app counts
// as unknown once all peers are heard.
func selectionExports(f *Facts) []Result {
	unheard := slices.ContainsFunc(f.Status.GetPeers(), func(p *v1alpha1.PeerStatus) bool {
		return !catalog.PeerWell(p.GetState())
	})
	return f.analysis(func(check string) bool {
		return check == analysis.NotExported || check == analysis.UnknownApp && !unheard
	})
}

// analyzed has the other warnings of isthmus analyze.
func analyzed(f *Facts) []Result {
	return f.analysis(func(check string) bool {
		return !slices.Contains([]string{analysis.NotExported, analysis.UnknownApp, analysis.ExportOfNothing}, check)
	})
}

// analysis has findings of some checks as results. Notes of selections count, since lookups fail;
// other notes may well be meant.
func (f *Facts) analysis(wanted func(check string) bool) (all []Result) {
	for _, x := range f.Findings {
		if !wanted(x.GetCheck()) || x.GetLevel() != "warning" && x.GetCheck() != analysis.UnknownApp {
			continue
		}
		k := x.GetKey()
		name := strings.Trim(k.GetNamespace()+"/"+k.GetName(), "/")
		all = append(all, Result{Level: Warn, Kind: ofObject, Name: k.GetKind() + " " + name, Found: x.GetPath() + ": " + x.GetWhat() + " [" + x.GetCheck() + "]", Fix: x.GetFix()})
	}
	return all
}

// askSentry connects to Sentry once for both checks.
func (f *Facts) askSentry(ctx context.Context) error {
	if f.Sentry == nil || f.lacks(trustBundleRole) {
		return nil
	}
	f.sentryOnce.Do(func() { f.sentryErr = f.Sentry(ctx) })
	return f.sentryErr
}

func sentry(ctx context.Context, f *Facts) []Result { return sentryAway(f.askSentry(ctx)) }

func sentryTrust(ctx context.Context, f *Facts) []Result { return otherSentry(f.askSentry(ctx)) }
