package smimcs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// account is a ServiceAccount, which stands for an app.
type account struct {
	Kind      string `yaml:"kind"`
	Name      string `yaml:"name"`
	Namespace string `yaml:"namespace"`
	Port      *int   `yaml:"port"`
}

type rule struct {
	Kind    string   `yaml:"kind"`
	Name    string   `yaml:"name"`
	Matches []string `yaml:"matches"`
}

type access struct {
	path        string    // of Rules
	Destination *account  `yaml:"destination"`
	Rules       []rule    `yaml:"rules"`
	Sources     []account `yaml:"sources"`
}

// target reads a TrafficTarget: its sources may call its destination.
func (d *decoder) target() {
	var spec access
	at := "spec."
	if d.version == "v1alpha1" {
		var o struct {
			header      `yaml:",inline"`
			Destination *account  `yaml:"destination"`
			Specs       []rule    `yaml:"specs"`
			Sources     []account `yaml:"sources"`
		}
		d.fill(&o)
		at, spec = "", access{"specs", o.Destination, o.Specs, o.Sources}
	} else {
		var o struct {
			header `yaml:",inline"`
			Spec   access `yaml:"spec"`
		}
		d.fill(&o)
		spec = o.Spec
		spec.path = "spec.rules"
	}
	d.rules(at, spec)
	accounts := d.accounts()
	for i, source := range spec.Sources {
		d.doc.callers = append(d.doc.callers, d.apps(fmt.Sprintf("%ssources[%d]", at, i), source, accounts)...)
	}
	if len(spec.Sources) == 0 {
		d.refuse(at+"sources", "is missing", "name the ServiceAccounts of the callers")
	}
	d.destination(at+"destination", spec.Destination, accounts)
}

func (d *decoder) destination(path string, to *account, accounts map[string][]string) {
	if to == nil {
		d.refuse(path, "is missing", "name the ServiceAccount of the callee")
		return
	}
	apps := d.apps(path, *to, accounts)
	switch {
	case len(apps) > 1:
		d.refuse(path, fmt.Sprintf("%s stands for %d apps", to.Name, len(apps)), "write a TrafficTarget for each, which names its app in isthmus.dev/apps")
	case len(apps) == 1 && apps[0].Namespace != d.doc.Namespace:
		d.refuse(path, fmt.Sprintf("%s is not in the namespace of %s", apps[0], d.doc.ID), "write the TrafficTarget in the namespace of its destination")
	case len(apps) == 1:
		d.doc.callee = apps[0]
	}
}

// rules are what a target limits its sources to, less than the whole app. Nothing here can hold
// them, so that the user has to say that something else does.
func (d *decoder) rules(at string, spec access) {
	limit := func(path, what string) {
		if d.annotation("ignore-rules") == "true" {
			d.note("%s: %s: %s has no equivalent and is ignored", d.doc.ID, path, what)
			return
		}
		d.refuse(path, what+" has no equivalent, and without it the sources could call more than was meant",
			`limit calls by the access control of Dapr's Configuration, then annotate isthmus.dev/ignore-rules: "true"`)
	}
	for i, r := range spec.Rules {
		limit(fmt.Sprintf("%s[%d]", spec.path, i), strict.Shorten(r.Kind+" "+r.Name))
	}
	if spec.Destination != nil && spec.Destination.Port != nil {
		limit(at+"destination.port", "a port")
	}
}

// apps are those that a ServiceAccount stands for: the one of its name, or those that the
// annotation isthmus.dev/apps gives it.
func (d *decoder) apps(path string, of account, accounts map[string][]string) (all []catalog.App) {
	if of.Kind != "ServiceAccount" {
		d.refuse(path+".kind", fmt.Sprintf("%q is not known", of.Kind), "write ServiceAccount")
	}
	if of.Namespace == "" {
		of.Namespace = d.doc.Namespace
	}
	ids := accounts[of.Name]
	if ids == nil {
		ids = []string{of.Name}
	}
	for _, id := range ids {
		if app, ok := d.app(path+".name", of.Namespace, id); ok {
			all = append(all, app)
		}
	}
	return all
}

// accounts reads the annotation isthmus.dev/apps, such as "default=checkout, default=cart".
func (d *decoder) accounts() map[string][]string {
	all := map[string][]string{}
	for pair := range strings.SplitSeq(d.annotation("apps"), ",") {
		name, app, ok := strings.Cut(strings.TrimSpace(pair), "=")
		switch {
		case ok && name != "" && app != "":
			all[name] = append(all[name], app)
		case pair != "":
			d.refuse("metadata.annotations.isthmus.dev/apps", fmt.Sprintf("%q is no pair", strings.TrimSpace(pair)), "write serviceaccount=app-id, with commas between pairs")
		}
	}
	return all
}

// split reads a TrafficSplit: the weights of the clusters that have an app.
func (d *decoder) split() {
	var o struct {
		header `yaml:",inline"`
		Spec   struct {
			Service  string `yaml:"service"`
			Matches  []rule `yaml:"matches"`
			Backends []struct {
				Service string `yaml:"service"`
				Weight  string `yaml:"weight"`
			} `yaml:"backends"`
		} `yaml:"spec"`
	}
	d.fill(&o)
	for i, m := range o.Spec.Matches {
		d.refuse(fmt.Sprintf("spec.matches[%d]", i), fmt.Sprintf("%s %s has no equivalent: Isthmus does not look into calls", m.Kind, m.Name), "leave matches out to split all calls")
	}
	app, ok := d.app("spec.service", d.doc.Namespace, o.Spec.Service)
	if !ok {
		return
	}
	d.doc.callee = app
	var milli []uint64
	for i, b := range o.Spec.Backends {
		path := fmt.Sprintf("spec.backends[%d]", i)
		weight, ok := d.weight(b.Weight)
		if !ok {
			d.refuse(path+".weight", fmt.Sprintf("%q is no weight", b.Weight), "write a whole number such as 50")
		}
		milli = append(milli, weight)
		cluster := catalog.LocalCluster
		if b.Service != app.ID {
			if cluster, ok = strings.CutPrefix(b.Service, app.ID+"-"); !ok || catalog.CheckCluster(cluster) != nil {
				d.refuse(path+".service", fmt.Sprintf("%q is another app, and daprd refuses a callee with another app-id than it called", b.Service),
					fmt.Sprintf("name %s, which is the app in this cluster, or %s-<cluster>", app.ID, app.ID))
			}
		}
		if slices.ContainsFunc(d.doc.backends, func(o backend) bool { return o.cluster == cluster }) {
			d.refuse(path+".service", fmt.Sprintf("%q is there twice", b.Service), "keep one of them")
		}
		d.doc.backends = append(d.doc.backends, backend{cluster: cluster, service: b.Service})
	}
	if len(d.report.Errors) == 0 {
		d.weigh(milli)
	}
}

// weight is a weight in thousandths: v1alpha1 has quantities such as 500m.
func (d *decoder) weight(text string) (uint64, bool) {
	number, thousandths := text, false
	if d.version == "v1alpha1" {
		number, thousandths = strings.CutSuffix(text, "m")
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if !thousandths {
		n *= 1000
	}
	return n, err == nil
}

// weigh gives the backends the smallest whole weights with the same shares.
func (d *decoder) weigh(milli []uint64) {
	var divisor, most uint64
	for _, w := range milli {
		most = max(most, w)
		for a := w; a > 0; {
			a, divisor = divisor%a, a
		}
	}
	if most == 0 {
		d.refuse("spec.backends", "no backend has a weight, so none could ever be taken", "give one a weight")
		return
	}
	if unit := uint64(1000); divisor%unit == 0 && most/unit <= catalog.MaxWeight {
		divisor = unit // as they were written
	}
	if most/divisor > catalog.MaxWeight {
		d.refuse("spec.backends", fmt.Sprintf("weights take shares finer than 1 in %d", catalog.MaxWeight), "write rounder weights")
		return
	}
	for i := range milli {
		d.doc.backends[i].weight = uint32(milli[i] / divisor)
	}
}
