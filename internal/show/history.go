package show

import (
	"encoding/json"
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

// Version is what an object was from one write to the next, as programs read it.
type Version struct {
	Revision string          `json:"revision"`
	Time     string          `json:"time"` // of the write, RFC 3339; empty where it is not known
	Deleted  bool            `json:"deleted"`
	Unusable string          `json:"unusable"`       // why it could not be used
	Change   string          `json:"change"`         // in few words
	Diff     string          `json:"diff,omitempty"` // to the version before
	Object   json.RawMessage `json:"object"`         // null where it was deleted, or could not be used

	object catalog.Object
	at     time.Time
}

// VersionsOf reads an answer, newest first.
func VersionsOf(m *v1alpha1.HistoryResponse, key catalog.Key) ([]Version, error) {
	all := make([]Version, len(m.GetVersions()))
	for i, p := range m.GetVersions() {
		v := Version{Revision: p.GetRevision(), Deleted: p.GetDeleted(), Unusable: p.GetUnusable()}
		if p.GetAtUnixMs() != 0 {
			v.at = time.UnixMilli(p.GetAtUnixMs())
			v.Time = v.at.UTC().Format(time.RFC3339)
		}
		if len(p.GetJson()) > 0 {
			object, err := api.DecodeJSON(api.KeyPath(key), p.GetJson())
			if err != nil {
				return nil, fmt.Errorf("read %s from the answer: %w; is the service of another version than this isthmus?", key, err)
			}
			v.object, v.Object = object, nested(object)
		}
		all[i] = v
	}
	for i := range all {
		all[i].compare(key, all[i+1:])
	}
	return all, nil
}

// compare says how a version is different from the one before it.
func (v *Version) compare(key catalog.Key, older []Version) {
	side := Side{v.object, "revision " + v.Revision}
	switch {
	case v.Deleted:
		v.Change, side = "deleted", Side{}
	case v.Unusable != "":
		v.Change = "can't be used: " + strings.ReplaceAll(v.Unusable, "\n", "; ")
	case len(older) == 0:
		v.Change = "the oldest that is known"
		return
	case older[0].Deleted:
		v.Change = "created"
	case older[0].object == nil:
		v.Change = "mended"
	default:
		v.Change = changeOf(older[0].object, v.object)
	}
	if len(older) == 0 {
		return
	}
	before := Side{}
	if was := older[0]; !was.Deleted {
		before = Side{was.object, "revision " + was.Revision}
	}
	v.Diff = Diff(key, before, side)
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

// History writes versions: as a table, as JSON in a list, or as YAML whole, each after
// a comment that says which it is.
func History(w io.Writer, f Format, all []Version) error {
	switch f {
	case JSON:
		return Print(w, JSON, "VersionList", ListOf(all))
	case YAML:
		return historyYAML(w, all)
	}
	var table [][]string
	for _, v := range all {
		at := "unknown"
		if !v.at.IsZero() {
			at = v.at.Local().Format(time.DateTime)
		}
		table = append(table, []string{v.Revision, at, v.Change})
	}
	return rows(w, []string{"REVISION", "WRITTEN", "CHANGE"}, table)
}

func historyYAML(w io.Writer, all []Version) error {
	for i, v := range all {
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		fmt.Fprintf(w, "# %s\n", strings.Join(slices.DeleteFunc([]string{"revision " + v.Revision, v.Time, v.Change}, func(s string) bool { return s == "" }), ", "))
		if v.object == nil {
			continue
		}
		if _, err := w.Write(api.EncodeYAML(v.object)); err != nil {
			return err
		}
	}
	return nil
}

// HistoryDiffs writes the diff of each version to the one before it, newest first.
func HistoryDiffs(w io.Writer, all []Version, colours bool) error {
	for _, v := range all {
		if err := writeDiff(w, v.Diff, colours); err != nil {
			return err
		}
	}
	return nil
}
