// Package check looks for faults of a resolver service and of the ways to and from it, each under
// a name that stays. The checks are the [Table]: each reads what the service publishes, or tries
// something that changes nothing.
package check

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/callhealth"
)

// Level says how bad a result is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // calls go through, or will not for long
	Fail Level = "fail" // calls fail
)

// Rank orders levels, the worst highest.
func (l Level) Rank() int { return slices.Index([]Level{OK, Warn, Fail}, l) }

// Result is what one check has found out about one subject.
type Result struct {
	Check string
	Level Level
	Kind  string // of the subject
	Name  string // of the subject
	Found string // empty where the level is OK
	Fix   string
}

// Messages are the messages of results.
func Messages(results []Result) (all []*v1alpha1.CheckResult) {
	for _, r := range results {
		all = append(all, &v1alpha1.CheckResult{Check: r.Check, Level: string(r.Level), Kind: r.Kind, Name: r.Name, Found: r.Found, Fix: r.Fix})
	}
	return all
}

// Kinds of subjects.
const (
	ofService     = "service"
	ofPeer        = "peer"
	ofGateway     = "gateway"
	ofSidecar     = "sidecar"
	ofObject      = "object"
	ofCertificate = "certificate"
	ofSource      = "source"
	aSentry       = "sentry"
	ofRole        = "role"

	// In Kubernetes.
	ofCluster           = "cluster"
	ofNamespace         = "namespace"
	ofDeployment        = "deployment"
	ofConfiguration     = "configuration"
	ofKubernetesService = "kubernetes service"
	ofApp               = "app"
)

// Check is one row of the table. It has one of the functions. Each returns the faults; none
// means that all is well.
type Check struct {
	Name string

	ofSentry bool // only where an identity is from Sentry
	oneApp   bool // only where one app is

	look    func(*Facts) []Result                  // at what the service publishes
	try     func(context.Context, *Facts) []Result // takes a while
	gateway func(*Facts, *visit) *Result           // at each gateway of each peer; a nil subject is filled in
	command func(*Way) []Result                    // on the command's way to the service
	cluster func(*Cluster) []Result                // at the Kubernetes cluster that the command reads
	pre     func(*Cluster) []Result                // the same, before Isthmus is installed
}

// Table has every check, in the order in which people read them. Gateways stop at the first fault.
var Table = []Check{
	{Name: "service-reachable", command: reachable},
	{Name: "service-trust", command: trusted},
	{Name: "operator", command: allowed},
	{Name: "sentry", ofSentry: true, command: sentryReached, try: sentry},
	{Name: "sentry-trust", ofSentry: true, command: sentryTrusted, try: sentryTrust},
	{Name: "clock", command: commandClock, look: clocks},
	{Name: "versions", command: commandVersion, look: versions},
	{Name: "identity", look: ownIdentity},
	{Name: "certificates", look: certificates},
	{Name: "own-roots", try: ownRoots, cluster: ownRootsThere},
	{Name: "rights", look: rights},
	{Name: "crds", look: definitions},
	{Name: "store", look: store},
	{Name: "store-writes", try: storeWrites},
	{Name: StoreServer, look: problems(StoreServer)},
	{Name: StoreIdentity, look: problems(StoreIdentity)},
	{Name: Disk, look: problems(Disk)},
	{Name: "objects", look: refusedObjects},
	{Name: "sources", look: sources},
	{Name: "replicas", look: missingReplicas},
	{Name: "dns-upstreams", look: upstreams},
	{Name: "dns-zone", try: zone},
	{Name: "kubernetes", cluster: kubernetesVersion, pre: kubernetesVersion},
	{Name: "kubernetes-reads", cluster: unread, pre: unread},
	{Name: "dapr", cluster: dapr, pre: dapr},
	{Name: "dapr-mtls", cluster: daprMTLS, pre: daprMTLS},
	{Name: "dapr-trust-bundle", cluster: trustBundle, pre: trustBundle},
	{Name: "pod-security", cluster: podSecurity, pre: podSecurity},
	{Name: "install-rights", pre: installRights},
	{Name: "admission-policies", pre: admissionPolicies},
	{Name: "load-balancer", pre: loadBalancer},
	{Name: "cluster-name", pre: clusterNames},
	{Name: "gateway-service", cluster: gatewayService},
	{Name: "pod-sidecar", cluster: podsWithoutSidecar},
	{Name: "pod-image", cluster: podsWithStockImage},
	{Name: "pod-configuration", cluster: podsWithoutConfiguration},
	{Name: "pod-outdated", cluster: podsThatAreOld},
	{Name: "gateway-port", gateway: gatewayPort},
	{Name: "gateway-mtu", gateway: gatewayMTU},
	{Name: "gateway-proxy-protocol", gateway: gatewayProxy},
	{Name: "gateway-server-name", gateway: gatewayServerName},
	{Name: "peer-domain", gateway: peerDomain},
	{Name: "gateway-tls", gateway: gatewayTLS},
	{Name: "peer-name", gateway: peerName, look: peerNames},
	{Name: "peer-roots-here", gateway: rootsHere},
	{Name: "peer-roots-there", gateway: rootsThere},
	{Name: "peer-link"}, // of the gateways' results and of the peer's status: see peers
	{Name: "peer-tunnel", look: lostTunnels},
	{Name: "peer-elsewhere", look: lostPeers},
	{Name: "peer-one-way", look: oneWay},
	{Name: "peer-introductions", look: introductions},
	{Name: "peer-apps"}, // of one peer, behind its gateways: see peer
	{Name: "mtls", look: mtls},
	{Name: "sidecar-roots", look: sidecarRoots},
	{Name: "export-instances", look: exportInstances},
	{Name: "selection-exports", look: selectionExports},
	{Name: "actors-bridge", look: bridges},
	{Name: callhealth.CallsRefused, look: callFaults(callhealth.CallsRefused)},
	{Name: callhealth.CallsFailed, look: callFaults(callhealth.CallsFailed)},
	{Name: callhealth.AppHealth, look: callFaults(callhealth.AppHealth)},
	{Name: callhealth.CalleesOffered, look: callFaults(callhealth.CalleesOffered)},
	{Name: callhealth.ExportMissing, look: callFaults(callhealth.ExportMissing)},
	{Name: "analysis", look: analyzed},
	{Name: "app-instances", oneApp: true, look: appInstances},
	{Name: "app-callees", oneApp: true, look: appCallees},
}

// most is how many results one check has at most.
const most = 20

// Facts are what the checks read.
type Facts struct {
	Now      time.Time
	Status   *v1alpha1.StatusResponse
	Findings []*v1alpha1.Finding
	Exported []*v1alpha1.AppState // apps with an AppExport
	Sidecars []Sidecar
	Bridges  []*v1alpha1.AppState  // for actors, that should run here
	Faults   []*v1alpha1.CallFault // of calls
	// MayWrite is the error of a store that can't be written. It writes nothing.
	MayWrite func(context.Context) error
	// Sentry connects to Sentry; nil where the identity is from elsewhere.
	Sentry func(context.Context) error
	// Zone asks the machine's resolver for the zone; nil where pods need not know it.
	Zone   func(context.Context) error
	Prober *Prober
	// Peer is the one that alone is looked at, and App the same; see Limit.
	Peer string
	App  catalog.App
	// Imported are the apps that Peer exports to this cluster; State is App's, nil if it is not known.
	Imported []*v1alpha1.AppState
	State    *v1alpha1.AppState
	Callees  []Callee // of App
	// Lacks are rights in Kubernetes that the service's account should have. LacksErr tells why they
	// are not known.
	Lacks    []Lack
	LacksErr error

	// Definitions are nil where the store has none.
	Definitions *Definitions
	Vouching    []string // fingerprints of the own roots that the own certificate chains to
	// Bundle reads the ConfigMap whose roots are followed; nil: none is. It returns its name and the
	// fingerprints of its roots.
	Bundle func(context.Context) (name string, roots []string, err error)

	sentryOnce sync.Once
	sentryErr  error
}

// Sidecar is one that is connected.
type Sidecar struct {
	*v1alpha1.SidecarState
	LeadsTo func(cluster string) bool // its app's view does
}

// Callee is an app that another may call, and how its lookup ends.
type Callee struct {
	App      catalog.App
	Decision catalog.Decision
}

// wanted tells whether a check is made at all.
func (f *Facts) wanted(c *Check) bool {
	return (!c.ofSentry || f.Sentry != nil) && (!c.oneApp || f.App != catalog.App{})
}

// Run makes all checks that a service makes, side by side, and emits their results as they come.
// Calls of emit never overlap.
func Run(ctx context.Context, f *Facts, emit func([]Result) error) error {
	found := make(chan []Result)
	var running sync.WaitGroup
	for _, c := range Table {
		if !f.wanted(&c) {
			continue
		}
		if c.look != nil {
			running.Go(func() { found <- f.complete(c.Name, c.look(f)) })
		}
		if c.try != nil {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(ctx, f.Prober.Within)
				defer cancel()
				found <- f.complete(c.Name, c.try(ctx, f))
			})
		}
	}
	for _, p := range f.Status.GetPeers() {
		running.Go(func() { found <- f.peer(ctx, p) })
	}
	go func() {
		running.Wait()
		close(found)
	}()
	var err error
	for results := range found {
		if err == nil && len(results) > 0 {
			err = emit(results)
		}
	}
	return cmp.Or(err, ctx.Err())
}

// Look makes the checks that only read what the service publishes, and returns the faults.
func Look(f *Facts) (faults []Result) {
	for _, c := range Table {
		if c.look != nil {
			for _, r := range f.complete(c.Name, c.look(f)) {
				if r.Level != OK {
					faults = append(faults, r)
				}
			}
		}
	}
	return faults
}

// Looks are the names of these checks.
func Looks() (names []string) {
	for _, c := range Table {
		if c.look != nil {
			names = append(names, c.Name)
		}
	}
	return names
}

// complete adds what all results of a check share. No fault is an OK.
func (f *Facts) complete(name string, faults []Result) []Result {
	if len(faults) == 0 {
		return []Result{{Check: name, Level: OK, Kind: ofService, Name: f.Status.GetCluster()}}
	}
	if more := len(faults) - most; more > 0 {
		rest := faults[most]
		rest.Name, rest.Found = "", fmt.Sprintf("%d more are like the %d that are listed", more, most)
		faults = append(faults[:most:most], rest)
	}
	for i := range faults {
		faults[i].Check = name
	}
	return faults
}

// peer checks a peer by its gateways and by its link.
func (f *Facts) peer(ctx context.Context, p *v1alpha1.PeerStatus) []Result {
	visits := f.Prober.visit(ctx, p)
	var all []Result
	var good []string
	for _, v := range visits {
		results := f.gateway(v)
		if !slices.ContainsFunc(results, func(r Result) bool { return r.Level != OK }) {
			good = append(good, v.address)
		}
		all = append(all, results...)
	}
	if len(good) > 0 { // the others do
		for i := range all {
			if all[i].Level == Fail {
				all[i].Level = Warn
			}
		}
	}
	if len(visits) > 0 && len(good) == 0 {
		return all // these say why the link is not up
	}
	if f.Peer != "" {
		all = append(all, f.complete("peer-apps", f.peerApps(ctx, good))...)
	}
	return append(all, f.complete("peer-link", link(p))...)
}

// gateway makes the checks of one gateway.
func (f *Facts) gateway(v *visit) (all []Result) {
	for _, c := range Table {
		if c.gateway == nil {
			continue
		}
		r := c.gateway(f, v)
		if r == nil {
			r = &Result{Level: OK}
		}
		r.Check, r.Kind, r.Name = c.Name, ofGateway, v.cluster+" "+v.address
		all = append(all, *r)
		if r.Level != OK && c.Name != "peer-roots-here" {
			return all // it says nothing of what comes after
		}
	}
	return all
}

// Sort sorts results: the worst first, then by the table, then by subject.
func Sort(all []*v1alpha1.CheckResult) {
	place := map[string]int{}
	for i, c := range Table {
		place[c.Name] = i
	}
	slices.SortStableFunc(all, func(a, b *v1alpha1.CheckResult) int {
		worse := Level(b.GetLevel()).Rank() - Level(a.GetLevel()).Rank()
		return cmp.Or(worse, place[a.GetCheck()]-place[b.GetCheck()], cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()))
	})
}
