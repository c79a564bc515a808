package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// App is an app as a cluster knows it, as programs read it.
type App struct {
	App        string     `json:"app" yaml:"app"`
	Ready      uint32     `json:"ready" yaml:"ready"` // addresses here
	Draining   uint32     `json:"draining" yaml:"draining"`
	Instances  []Instance `json:"instances" yaml:"instances"`
	Imports    []Import   `json:"imports" yaml:"imports"`       // clusters that export it to this one
	ExportedTo []string   `json:"exportedTo" yaml:"exportedTo"` // "*" for any cluster
	Callers    uint32     `json:"callers" yaml:"callers"`       // apps here whose selection holds it
	Selection  bool       `json:"selection" yaml:"selection"`   // it has AppEndpoints
	Faults     []Fault    `json:"faults" yaml:"faults"`         // of calls to it
}

// Fault is what is wrong with calls of one app to another, or with an app that takes none.
type Fault struct {
	Check   string `json:"check" yaml:"check"`
	Level   string `json:"level" yaml:"level"`     // warn or fail
	Caller  string `json:"caller" yaml:"caller"`   // empty where it is about the callee alone
	Callee  string `json:"callee" yaml:"callee"`   // empty for several
	Cluster string `json:"cluster" yaml:"cluster"` // that the calls went to, or were refused in
	Outcome string `json:"outcome" yaml:"outcome"` // of lookups, a gRPC code, slow or dead
	Calls   uint64 `json:"calls" yaml:"calls"`     // in the last minute, that ended so
	Of      uint64 `json:"of" yaml:"of"`           // calls that are known of in that minute
	Since   string `json:"since" yaml:"since"`     // RFC 3339
	Why     string `json:"why" yaml:"why"`
	Change  string `json:"change" yaml:"change"` // the last write before it that touched one of the two
	What    string `json:"what" yaml:"what"`     // all of it
	Fix     string `json:"fix" yaml:"fix"`
}

// Name names the apps.
func (f *Fault) Name() string {
	if f.Caller == "" || f.Callee == "" {
		return f.Caller + f.Callee
	}
	return f.Caller + " to " + f.Callee
}

// FaultOf reads a fault of calls.
func FaultOf(m *v1alpha1.CallFault) Fault {
	return Fault{
		Check: m.GetCheck(), Level: m.GetLevel(), Caller: appName(m.GetCaller()), Callee: appName(m.GetCallee()), Cluster: m.GetCluster(), Outcome: m.GetOutcome(),
		Calls: m.GetCalls(), Of: m.GetOf(), Since: stamp(m.GetSinceUnixMs()), Why: m.GetWhy(), Change: m.GetChange(), What: m.GetWhat(), Fix: m.GetFix(),
	}
}

// Instance is an instance of an app, as one source has it.
type Instance struct {
	Source   string `json:"source" yaml:"source"`
	ID       string `json:"id" yaml:"id"`
	Address  string `json:"address" yaml:"address"`
	Draining bool   `json:"draining" yaml:"draining"`
	Zone     string `json:"zone" yaml:"zone"`
	TakenBy  string `json:"takenBy" yaml:"takenBy"` // the app whose address it is, where that is another
}

// Import is an app in another cluster.
type Import struct {
	Cluster string `json:"cluster" yaml:"cluster"`
	Ready   uint32 `json:"ready" yaml:"ready"`
	Stale   bool   `json:"stale" yaml:"stale"`
}

// AppOf reads an app.
func AppOf(m *v1alpha1.AppState) App {
	a := App{
		App: appName(m.GetApp()), Ready: m.GetReady(), Draining: m.GetDraining(), Callers: m.GetCallers(), Selection: m.GetSelection(),
		Instances: []Instance{}, Imports: []Import{}, ExportedTo: append([]string{}, m.GetExportedTo()...), Faults: []Fault{},
	}
	for _, f := range m.GetFaults() {
		a.Faults = append(a.Faults, FaultOf(f))
	}
	for _, i := range m.GetInstances() {
		a.Instances = append(a.Instances, Instance{i.GetSource(), i.GetId(), i.GetAddress(), i.GetDraining(), i.GetZone(), appName(i.GetTakenBy())})
	}
	for _, i := range m.GetImports() {
		a.Imports = append(a.Imports, Import{i.GetCluster(), i.GetReady(), i.GetStale()})
	}
	return a
}

// Apps writes a line for each app. With details there are its instances, too.
func Apps(w io.Writer, all []App, details bool) error {
	var table [][]string
	for i := range all {
		a := &all[i]
		table = append(table, []string{a.App, a.Here(), a.Elsewhere(), cmp.Or(strings.Join(a.ExportedTo, ", "), "-"), number(a.Callers), yes(a.Selection), a.Health()})
	}
	heading := []string{"APP", "HERE", "ELSEWHERE", "EXPORTED TO", "CALLERS", "SELECTION", "CALLS"}
	if !slices.ContainsFunc(all, func(a App) bool { return len(a.Faults) > 0 }) {
		heading = heading[:len(heading)-1]
		for i := range table {
			table[i] = table[i][:len(heading)]
		}
	}
	if err := rows(w, heading, table, "SELECTION"); err != nil {
		return err
	}
	for i := range all {
		for _, f := range all[i].Faults {
			paragraph(w, "", "  ", f.Name()+": "+f.What)
		}
	}
	if !details {
		return nil
	}
	for i := range all {
		if len(all[i].Instances) == 0 {
			continue
		}
		Say(w, "\n%s\n", all[i].App)
		var table [][]string
		for _, in := range all[i].Instances {
			table = append(table, []string{"  " + in.Address, in.Source, in.Shown(), cmp.Or(in.Zone, "-"), in.ID})
		}
		if err := rows(w, []string{"  ADDRESS", "SOURCE", "STATE", "ZONE", "ID"}, table); err != nil {
			return err
		}
	}
	return nil
}

// Here is how many instances the app has here, in words.
func (a *App) Here() string {
	switch {
	case len(a.Instances) == 0:
		return "-"
	case a.Draining > 0:
		return fmt.Sprintf("%d ready, %d draining", a.Ready, a.Draining)
	}
	return fmt.Sprintf("%d ready", a.Ready)
}

// Health is how calls to the app end, in a word for each thing that is wrong.
func (a *App) Health() string {
	var words []string
	for _, f := range a.Faults {
		if !slices.Contains(words, f.Outcome) {
			words = append(words, f.Outcome)
		}
	}
	return cmp.Or(strings.Join(words, ", "), "-")
}

// Elsewhere is the clusters that have the app, each with its ready instances.
func (a *App) Elsewhere() string {
	var all []string
	for _, i := range a.Imports {
		text := fmt.Sprintf("%s %d", i.Cluster, i.Ready)
		if i.Stale {
			text += " (stale)"
		}
		all = append(all, text)
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}

// Shown is the state of the instance, in words.
func (i *Instance) Shown() string {
	switch {
	case i.TakenBy != "":
		return "address of " + i.TakenBy
	case i.Draining:
		return "draining"
	}
	return "ready"
}

// Sidecar is a client of a resolver service, as programs read it.
type Sidecar struct {
	App            string `json:"app" yaml:"app"`
	Instance       string `json:"instance" yaml:"instance"`
	Address        string `json:"address" yaml:"address"` // that it has registered
	Source         string `json:"source" yaml:"source"`   // that its stream comes from
	State          string `json:"state" yaml:"state"`     // ready, draining or waiting
	Unwell         string `json:"unwell" yaml:"unwell"`   // why its app can't take calls, where that is why it drains
	Zone           string `json:"zone" yaml:"zone"`
	Since          string `json:"since" yaml:"since"` // RFC 3339
	Version        string `json:"version" yaml:"version"`
	Runtime        string `json:"runtime" yaml:"runtime"`
	Identity       string `json:"identity" yaml:"identity"`   // SPIFFE ID; empty where the service is insecure
	PlainText      bool   `json:"plainText" yaml:"plainText"` // its calls are not encrypted
	Revision       uint64 `json:"revision" yaml:"revision"`   // of the view that was sent last
	NewestRevision uint64 `json:"newestRevision" yaml:"newestRevision"`
	Delivered      bool   `json:"delivered" yaml:"delivered"` // it has read what was sent

	TrustAnchors []string `json:"trustAnchors" yaml:"trustAnchors"` // SHA-256 of each root that calls must chain to

	since int64
}

// SidecarOf reads a sidecar.
func SidecarOf(m *v1alpha1.SidecarState) Sidecar {
	return Sidecar{
		App: appName(m.GetApp()), Instance: m.GetInstance(), Address: m.GetAddress(), Source: m.GetSource(), State: m.GetState(), Unwell: m.GetUnwell(), Zone: m.GetZone(),
		Since: time.UnixMilli(m.GetSinceUnixMs()).UTC().Format(time.RFC3339), Version: m.GetVersion(), Runtime: m.GetRuntime(), Identity: m.GetIdentity(), PlainText: m.GetPlainText(),
		Revision: m.GetRevision(), NewestRevision: m.GetNewestRevision(), Delivered: m.GetDelivered(), TrustAnchors: m.GetTrustAnchors(), since: m.GetSinceUnixMs(),
	}
}

// Current tells whether the sidecar has its app's newest view.
func (s *Sidecar) Current() bool { return s.Delivered && s.Revision >= s.NewestRevision }

// Sidecars writes a line for each sidecar.
func Sidecars(w io.Writer, all []Sidecar, now time.Time) error {
	var table [][]string
	for i := range all {
		s := &all[i]
		table = append(table, []string{s.App, s.Where(), s.Shown(), age(s.since, now), cmp.Or(s.Zone, "-"), cmp.Or(s.Version, "-"), cmp.Or(strings.TrimPrefix(s.Runtime, "daprd "), "-"), s.MTLS(), s.Seen()})
	}
	return rows(w, []string{"APP", "ADDRESS", "STATE", "FOR", "ZONE", "VERSION", "DAPRD", "MTLS", "VIEW"}, table, "ZONE", "VERSION", "DAPRD", "MTLS")
}

// Where is the address that the sidecar has registered, or else where its stream comes from.
func (s *Sidecar) Where() string {
	return cmp.Or(s.Address, s.Source, "-")
}

// Shown is the state of the sidecar, in words.
func (s *Sidecar) Shown() string {
	if s.State == "waiting" {
		return "waiting for its app"
	}
	if s.Unwell != "" {
		return "draining: its app takes no calls"
	}
	return s.State
}

// Seen is the revision of the view that it has, and the newest one where that is another.
func (s *Sidecar) Seen() string {
	if s.Current() {
		return strconv.FormatUint(s.Revision, 10)
	}
	return fmt.Sprintf("%d, behind %d", s.Revision, s.NewestRevision)
}

// MTLS tells whether its calls are encrypted: yes or no.
func (s *Sidecar) MTLS() string {
	if s.Identity == "" || s.PlainText {
		return "no"
	}
	return "yes"
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "-"
}
