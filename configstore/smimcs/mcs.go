package smimcs

import "strings"

// export reads a ServiceExport: other clusters may call the app of its name.
func (d *decoder) export() {
	var o struct {
		header `yaml:",inline"`
		Spec   struct {
			Labels      any `yaml:"exportedLabels"`
			Annotations any `yaml:"exportedAnnotations"`
		} `yaml:"spec"`
	}
	d.fill(&o)
	d.doc.callee, _ = d.app("metadata.name", d.doc.Namespace, d.doc.Name)
	if o.Spec.Labels != nil || o.Spec.Annotations != nil {
		d.note("%s: exportedLabels and exportedAnnotations have no equivalent", d.doc.ID)
	}
}

// imported reads a ServiceImport. The API says that every app may call it, but nothing tells
// which do: the annotation isthmus.dev/callers does. Its addresses are not read.
func (d *decoder) imported() {
	var o struct {
		header `yaml:",inline"`
		Spec   struct {
			Type     string `yaml:"type"`
			Ports    any    `yaml:"ports"`
			IPs      any    `yaml:"ips"`
			Families any    `yaml:"ipFamilies"`
			Affinity string `yaml:"sessionAffinity"`
			Sessions any    `yaml:"sessionAffinityConfig"`
			Internal string `yaml:"internalTrafficPolicy"`
			Prefers  string `yaml:"trafficDistribution"`
		} `yaml:"spec"`
	}
	d.fill(&o)
	d.doc.callee, _ = d.app("metadata.name", d.doc.Namespace, d.doc.Name)
	if o.Spec.Affinity == "ClientIP" {
		d.note("%s: spec.sessionAffinity has no equivalent: each call is balanced by itself", d.doc.ID)
	}
	if o.Spec.Internal == "Local" || o.Spec.Prefers != "" {
		d.note("%s: spec.internalTrafficPolicy and spec.trafficDistribution have no equivalent here; an AppEndpoints has locality", d.doc.ID)
	}
	for id := range strings.SplitSeq(d.annotation("callers"), ",") {
		if id = strings.TrimSpace(id); id == "" {
			continue
		}
		if app, ok := d.app("metadata.annotations.isthmus.dev/callers", d.doc.Namespace, id); ok {
			d.doc.callers = append(d.doc.callers, app)
		}
	}
	if len(d.doc.callers) == 0 {
		d.note(`%s names no caller, so nothing is derived from it: annotate isthmus.dev/callers: "app-id, …"`, d.doc.ID)
	}
}
