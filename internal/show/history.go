package show

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// Compared completes an answer about an object: it says how each version is different from the one
// before it.
func Compared(m *v1alpha1.HistoryResponse, key catalog.Key) error {
	objects := make([]catalog.Object, len(m.GetVersions()))
	for i, v := range m.GetVersions() {
		var err error
		if len(v.GetJson()) > 0 {
			if objects[i], err = decoded(key, v.GetJson()); err != nil {
				return err
			}
		}
	}
	for i, v := range m.GetVersions() {
		var before *v1alpha1.PastObject
		was := Side{}
		if i+1 < len(objects) {
			if before = m.GetVersions()[i+1]; !before.GetDeleted() {
				was = Side{objects[i+1], "revision " + before.GetRevision()}
			}
		}
		is := Side{objects[i], "revision " + v.GetRevision()}
		if v.GetDeleted() {
			is = Side{}
		}
		v.Change = change(v, before, was.Object, is.Object)
		if before != nil {
			v.Diff = Diff(key, was, is)
		}
	}
	return nil
}

// change says in few words how a version is different from the one before it; nil if that is not known.
func change(v, before *v1alpha1.PastObject, was, is catalog.Object) string {
	switch {
	case v.GetDeleted():
		return "deleted"
	case v.GetUnusable() != "":
		return "can't be used: " + strings.ReplaceAll(v.GetUnusable(), "\n", "; ")
	case before == nil:
		return "the oldest that is known"
	case before.GetDeleted():
		return "created"
	case was == nil:
		return "mended"
	}
	return changeOf(was, is)
}

// changeOf says in few words what makes an object another: + is new, - is gone, ~ is
// different.
func changeOf(was, is catalog.Object) string {
	before, after := parts(was), parts(is)
	var added, changed, removed []string
	for _, name := range slices.Sorted(maps.Keys(after)) {
		old, there := before[name]
		switch {
		case !there:
			added = append(added, "+"+name)
		case old != after[name]:
			changed = append(changed, "~"+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, there := after[name]; !there {
			removed = append(removed, "-"+name)
		}
	}
	words := slices.Concat(added, changed, removed)
	switch {
	case len(words) > 0:
		return catalog.Brief(words)
	case string(api.EncodeJSON(was)) == string(api.EncodeJSON(is)):
		return "nothing"
	}
	return "the order"
}

// parts are what people tell an object's versions apart by: names, each with what
// belongs to it.
func parts(o catalog.Object) map[string]string {
	all := map[string]string{}
	switch o := o.(type) {
	case *catalog.AppEndpoints:
		for i := range o.Endpoints {
			e := &o.Endpoints[i]
			all[e.App.Within(o.App.Namespace)] = fmt.Sprint(e.Routes, e.WhenStale, e.Locality)
		}
		for _, a := range o.Actors {
			all["actors "+a.Type] = fmt.Sprint(a.Clusters)
		}
	case *catalog.AppExport:
		for _, a := range o.Allow {
			all[a.String()] = ""
		}
	case *catalog.Cluster:
		for _, g := range o.GatewayNames() {
			all["gateway "+g] = ""
		}
		if o.Network != "" {
			all["network"] = o.Network
		}
		for _, p := range o.NetworkRanges {
			all["network range "+p.String()] = ""
		}
		all["staleAfter"] = o.StaleAfter.String()
		all["rampUp"] = o.RampUp.String()
		if o.Trust.Domain != "" {
			all["trust.domain"] = o.Trust.Domain
		}
		if o.Trust.Roots != "" {
			all["trust.roots"] = o.Trust.Roots
		}
	case *catalog.ActorType:
		all["type"], all["owner"], all["draining"] = o.Type, o.Owner, fmt.Sprint(o.Draining)
		for _, a := range o.Allow {
			all[a.String()] = ""
		}
	case *catalog.AppInstance:
		all["app"], all["address"] = o.App, o.Address.String()
		if o.Zone != "" {
			all["zone"] = o.Zone
		}
		if o.Check != nil {
			all["check"] = fmt.Sprint(*o.Check)
		}
	}
	return all
}

// History writes the versions of an object: as a table, as JSON in a list, or as YAML whole, each
// after a comment that says which it is.
func History(w io.Writer, f Format, key catalog.Key, all []*v1alpha1.PastObject) error {
	switch f {
	case JSON:
		return PrintList(w, JSON, "VersionList", all)
	case YAML:
		return historyYAML(w, key, all)
	}
	var table [][]string
	for _, v := range all {
		at := "unknown"
		if v.GetAtUnixMs() != 0 {
			at = time.UnixMilli(v.GetAtUnixMs()).Local().Format(time.DateTime)
		}
		table = append(table, []string{v.GetRevision(), at, v.GetChange()})
	}
	return rows(w, []string{"REVISION", "WRITTEN", "CHANGE"}, table)
}

func historyYAML(w io.Writer, key catalog.Key, all []*v1alpha1.PastObject) error {
	for i, v := range all {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		fmt.Fprintf(w, "# %s\n", strings.Join(slices.DeleteFunc([]string{"revision " + v.GetRevision(), Stamp(v.GetAtUnixMs()), v.GetChange()}, func(s string) bool { return s == "" }), ", "))
		if len(v.GetJson()) == 0 {
			continue
		}
		object, err := decoded(key, v.GetJson())
		if err != nil {
			return err
		}
		if _, err := w.Write(api.EncodeYAML(object)); err != nil {
			return err
		}
	}
	return nil
}

// HistoryDiffs writes the diff of each version to the one before it, newest first.
func HistoryDiffs(w io.Writer, all []*v1alpha1.PastObject, colours bool) error {
	for _, v := range all {
		if err := writeDiff(w, v.GetDiff(), colours); err != nil {
			return err
		}
	}
	return nil
}
