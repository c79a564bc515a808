package api

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Bounds of an object, beside those in package catalog.
const (
	MaxAllow      = 10_000
	MaxGateways   = 100
	MaxNetwork    = 63 // characters of a network's name
	MaxRanges     = 100
	MinStaleAfter = 100 * time.Millisecond
	MaxStaleAfter = 24 * time.Hour
	MaxRampUp     = 10 * time.Minute
)

// validator turns a message into a value of package catalog, and reports what the
// descriptors can't know.
type validator struct{ written }

// written is the text that a message was read from, and what is reported of it.
type written struct {
	report    *strict.Report
	root      *strict.Node // nil for a message that was not read from text
	asWritten bool         // lines are those of root, not those of the canonical YAML
}

func (v *validator) object(m proto.Message) catalog.Object {
	switch m := m.(type) {
	case *v1alpha1.ActorType:
		return v.actorType(m)
	case *v1alpha1.AppEndpoints:
		return v.appEndpoints(m)
	case *v1alpha1.AppExport:
		return v.appExport(m)
	case *v1alpha1.AppInstance:
		return instanceValidator{v}.appInstance(m)
	case *v1alpha1.Cluster:
		return clusterValidator{v}.cluster(m)
	}
	return nil
}

func (w *written) refuse(path, what, fix string) {
	w.report.Add(w.position(path), path, what, fix)
}

func (w *written) position(path string) strict.Position {
	if w.root == nil {
		return strict.Position{}
	}
	return w.root.Find(path).At
}

// written by a user, though perhaps not as it should be: then that was reported.
func (w *written) there(path string) bool {
	parent, name := "", path
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		parent, name = path[:i], path[i+1:]
	}
	if w.root == nil {
		return false
	}
	n := w.root
	if parent != "" {
		n = n.Find(parent)
	}
	return n.Kind != strict.Map || n.Field(name) != nil
}

// blank tells whether a list or a mapping was written with nothing in it.
func (w *written) blank(path string) bool {
	if w.root == nil {
		return true
	}
	n := w.root.Find(path)
	return (n.Kind == strict.List || n.Kind == strict.Map) && len(n.Children) == 0
}

// required reports a field with no value, and tells whether there is one.
func (w *written) required(value, path, fix string) bool {
	if value == "" && !w.there(path) {
		w.refuse(path, "is missing", fix)
	}
	return value != ""
}

// check reports a name that can't be carried. Where there is none, that was reported.
func (w *written) check(err error, path, fix string) bool {
	if err != nil {
		w.refuse(path, err.Error(), fix)
	}
	return err == nil
}

// app is the app that the metadata of a namespaced object names.
func (v *validator) app(m *v1alpha1.Metadata) catalog.App {
	a := catalog.App{Namespace: intern(m.GetNamespace()), ID: intern(m.GetName())}
	if m == nil {
		v.required("", "metadata", "write \"metadata: {namespace: …, name: …}\"")
		return a
	}
	if v.required(a.Namespace, "metadata.namespace", "write the app's namespace") {
		v.check(catalog.CheckNamespace(a.Namespace), "metadata.namespace", "give the namespace another name")
	}
	if v.required(a.ID, "metadata.name", "write the app-id") {
		v.check(catalog.CheckHostAppID(a.ID), "metadata.name", "give the app another app-id; under this one it calls and is called within its cluster, without objects")
	}
	return a
}

func (w *written) spec(there bool, fix string) {
	if !there && !w.there("spec") {
		w.refuse("spec", "is missing", fix)
	}
}

func (w *written) atMost(path string, n, most int, fix string) bool {
	if n > most {
		w.refuse(path, fmt.Sprintf("has %d items; at most %d are taken", n, most), fix)
	}
	return n <= most
}

// source is where the object begins.
func (w *written) source() catalog.Source {
	if w.asWritten {
		return catalog.Source{File: w.report.File, Line: int(w.root.At.Line)}
	}
	return catalog.Source{Line: 1}
}

func (v *validator) appExport(m *v1alpha1.AppExport) catalog.Object {
	e := &catalog.AppExport{App: v.app(m.Metadata), Source: v.source()}
	v.spec(m.Spec != nil, "write who may call: \"spec: {allow: []}\" for nobody")
	e.Allow = v.allows(m.GetSpec().GetAllow(), checkExportCluster)
	return e
}

// checkExportCluster checks the cluster of an AppExport's callers. Its own one goes by "local", too.
func checkExportCluster(name string) error {
	if name == catalog.LocalCluster {
		return nil
	}
	return catalog.CheckCluster(name)
}

func (v *validator) allows(allow []*v1alpha1.Allow, cluster func(string) error) []catalog.Allow {
	if !v.atMost("spec.allow", len(allow), MaxAllow, "use \"*\"") || len(allow) == 0 {
		return nil
	}
	all := make([]catalog.Allow, len(allow))
	for i, a := range allow {
		all[i] = v.allow(i, a, cluster)
	}
	return all
}

// allow refuses an item that says nothing. It would allow anybody, which is what becomes of
// "cluster:" with no value on its way through kubectl apply.
func (v *validator) allow(i int, a *v1alpha1.Allow, cluster func(string) error) catalog.Allow {
	if path := fmt.Sprintf("spec.allow[%d]", i); a.Cluster == "" && a.Namespace == "" && a.App == "" && v.blank(path) {
		v.refuse(path, "says nothing of the caller, and so would allow anybody", "write {cluster: \"*\"} if that is meant")
	}
	check := func(name, value string, check func(string) error) string {
		if value == "" || value == "*" {
			return value
		}
		if err := check(value); err != nil {
			v.refuse(fmt.Sprintf("spec.allow[%d].%s", i, name), err.Error(), "write a name, or \"*\" for any")
		}
		return intern(value)
	}
	return catalog.Allow{
		Cluster:   check("cluster", a.Cluster, cluster),
		Namespace: check("namespace", a.Namespace, catalog.CheckNamespace),
		App:       check("app", a.App, catalog.CheckHostAppID),
	}
}

// clusterValidator checks a Cluster.
type clusterValidator struct{ *validator }

func (v clusterValidator) cluster(m *v1alpha1.Cluster) catalog.Object {
	c := &catalog.Cluster{Source: v.source(), StaleAfter: catalog.DefaultStaleAfter, RampUp: catalog.DefaultRampUp}
	v.clusterName(m.Metadata, c)
	v.spec(m.Spec != nil, "write how the cluster is reached: \"spec: {gateways: [{address: \"host:port\"}]}\"")
	spec := m.GetSpec()
	v.gateways(spec.GetGateways(), c)
	if c.Network = intern(spec.GetNetwork()); c.Network != "" {
		v.check(checkNetwork(c.Network), "spec.network", "give the network another name")
	}
	c.NetworkRanges = v.networkRanges(spec.GetNetworkRanges(), c.Network)
	if s := spec.GetStaleAfter(); s != "" {
		c.StaleAfter = v.duration("spec.staleAfter", s, MinStaleAfter, MaxStaleAfter)
	}
	if s := spec.GetRampUp(); s != "" {
		c.RampUp = v.duration("spec.rampUp", s, 0, MaxRampUp)
	}
	c.Trust = v.trust(spec.GetTrust())
	c.Tunnel, c.Guest = v.tunnel(spec), v.guest(spec)
	v.introductions(spec, c)
	return c
}

// tunnel reads which of two clusters dials.
func (v clusterValidator) tunnel(spec *v1alpha1.ClusterSpec) string {
	const path = "spec.tunnel"
	switch t := spec.GetTunnel(); t {
	case "":
		if v.there(path) {
			v.refuse(path, "is empty", "write accept or dial, or leave it out")
		}
	case catalog.TunnelAccept:
		if len(spec.GetGateways()) > 0 {
			v.refuse("spec.gateways", "are of a cluster that dials this one by spec.tunnel, and so can't be reached", "leave gateways out, or tunnel")
		}
		return t
	case catalog.TunnelDial:
		if len(spec.GetGateways()) == 0 {
			v.refuse("spec.gateways", "are missing, and spec.tunnel dials them", "write how the cluster is reached")
		}
		return t
	default:
		v.refuse(path, fmt.Sprintf("%q is neither accept nor dial", strict.Shorten(t)), "write accept where that cluster dials this one, dial where this one dials that, or leave it out")
	}
	return ""
}

func (v clusterValidator) clusterName(m *v1alpha1.Metadata, c *catalog.Cluster) {
	if m == nil {
		v.required("", "metadata", "write \"metadata: {name: …}\"")
		return
	}
	if m.Namespace != "" {
		v.refuse("metadata.namespace", "a Cluster has no namespace", "leave it out")
	}
	if v.required(m.Name, "metadata.name", "write the cluster's name") {
		v.check(catalog.CheckCluster(m.Name), "metadata.name", "give the cluster another name")
	}
	c.Name = intern(m.Name)
}

// networkRanges reads where instances of the cluster may be.
func (v *validator) networkRanges(texts []string, network string) (all []netip.Prefix) {
	const path = "spec.networkRanges"
	if !v.atMost(path, len(texts), MaxRanges, "write larger ranges") || len(texts) == 0 {
		return nil
	}
	if network == "" {
		v.refuse(path, "says where instances are on a shared network, and there is no spec.network", "write the network's name beside it, or leave it out")
	}
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case text == "" && v.root != nil: // that was reported
		case err != nil || p.Addr().Is4In6():
			v.refuse(at, fmt.Sprintf("%q is no range of IP addresses", strict.Shorten(text)), "write one such as 10.2.0.0/16")
		case p != p.Masked():
			v.refuse(at, fmt.Sprintf("%q has bits set after its first %d", strict.Shorten(text), p.Bits()), "write "+p.Masked().String())
		default:
			all = append(all, p)
		}
	}
	return all
}

// duration reads a length of time from min to max.
func (w *written) duration(path, s string, min, max time.Duration) time.Duration {
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		w.refuse(path, fmt.Sprintf("%q is not a length of time", strict.Shorten(s)), "write one such as \"10s\" or \"1m30s\"")
	case d < min || d > max || strings.HasPrefix(s, "-"):
		w.refuse(path, fmt.Sprintf("%s is out of bounds", d), fmt.Sprintf("write one from %s to %s", min, max))
	}
	return d
}

// checkNetwork holds a network's name to what every store and log can show.
func checkNetwork(s string) error {
	if len(s) > MaxNetwork {
		return fmt.Errorf("network %q is %d characters long; at most %d are taken", strict.Shorten(s), len(s), MaxNetwork)
	}
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !strings.ContainsRune("-._/", c)) {
			return fmt.Errorf("network %q has %q at position %d; letters, digits, and after the first also . _ - / are taken", strict.Shorten(s), c, i+1)
		}
	}
	return nil
}

// ownName reads the metadata of an object whose name is its own, and no app-id.
func (v *validator) ownName(m *v1alpha1.Metadata, namespace, name *string, whichNamespace, whichName, otherName string) {
	if m == nil {
		v.required("", "metadata", "write \"metadata: {namespace: …, name: …}\"")
		return
	}
	*namespace, *name = intern(m.Namespace), intern(m.Name)
	if v.required(m.Namespace, "metadata.namespace", whichNamespace) {
		v.check(catalog.CheckNamespace(m.Namespace), "metadata.namespace", "give the namespace another name")
	}
	if v.required(m.Name, "metadata.name", whichName) {
		v.check(catalog.CheckInstance(m.Name), "metadata.name", otherName)
	}
}
