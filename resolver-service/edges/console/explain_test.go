package console_test

import (
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/console/consoletest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/raced"
)

// How often a page is read anew, since a state may have changed meanwhile, and how many lookups are made
// until one falls on the address that the page's fell on.
const (
	mostPages   = 40
	mostLookups = 200
)

// The page explains each of 200 random lookups as isthmus explain does, field by field.
func TestExplainSaysWhatTheCommandSays(t *testing.T) {
	w := newWorld(t, 1)
	w.populate()
	w.troubles()
	met := map[string]int{}
	lookups := raced.Fewer(200)
	for range lookups {
		cluster, caller, app := "", one(w, asked), one(w, asked)
		if held := w.west.view(caller); w.chance(60) && len(held) > 0 {
			app = one(w, slices.SortedFunc(maps.Keys(held), catalog.App.Compare))
		} else if w.chance(40) {
			cluster = one(w, []string{"east", "north", "south"})
		}
		from := strings.TrimPrefix(cluster+":"+caller.String(), ":")
		page, got, want := w.explained("/explain?"+url.Values{"from": {from}, "to": {app.String()}}.Encode(), cluster, caller, app)
		if want != nil {
			t.Fatalf("%s asks for %s: the page differs from the command\npage    %s\ncommand %s", from, app, got, want)
		}
		met[got["outcome"][0]]++
		for _, what := range []string{"ramp", "share", "peer"} {
			for _, value := range got["route "+what] {
				if value != "" && value != "0" && value != "0 %" && value != "100 %" {
					met[what]++
				}
			}
		}
		if cluster != "" {
			met["from elsewhere"]++
		}
		if len(page.All("class", "marked")) > 0 {
			met["marked"]++
		}
	}
	for _, what := range []string{"ok", "denied", "unavailable", "stale", "not found", "ramp", "share", "peer", "from elsewhere", "marked"} {
		if met[what] == 0 && lookups == 200 {
			t.Errorf("no lookup of 200 had %q, so the test says nothing of that: %v", what, met)
		}
	}
}

// explained reads a page, and makes the lookup until it is answered as the page has it: each falls on an
// address by chance. want is the last answer that differs; nil if one was the same.
func (w *world) explained(path, cluster string, caller, app catalog.App) (page *consoletest.Page, got, want texts) {
	for range mostPages {
		page = w.page(path)
		got = fields(page.Node)
		for range mostLookups {
			if want = textsOf(w.west.resolve(cluster, caller, app)); reflect.DeepEqual(got, want) {
				return page, got, nil
			}
		}
	}
	return page, got, want
}

// texts are the fields of a decision as people read them.
type texts map[string][]string

func (x texts) String() string {
	var all []string
	for name, values := range x {
		all = append(all, fmt.Sprintf("%s: %q", name, values))
	}
	slices.Sort(all)
	return strings.Join(all, "\n        ")
}

// moment is how long ago something was, or is to come, which is another in each answer.
var moment = regexp.MustCompile(`[0-9.]+ (ms|s|min)\b`)

func (x texts) add(name, value string) {
	x[name] = append(x[name], moment.ReplaceAllString(strings.Join(strings.Fields(value), " "), "SOME $1"))
}

// fields are those of a page. A route's have the same place in each list.
func fields(page consoletest.Node) texts {
	x := texts{}
	for _, name := range []string{"outcome", "reason", "address", "cluster", "gateway", "rule", "revision"} {
		value := ""
		for _, dd := range page.All("data-field", name) {
			if dd.Data == "dd" {
				value = dd.Text()
			}
		}
		x.add(name, value)
	}
	for _, note := range page.All("data-field", "note") {
		x.add("note", note.Text())
	}
	for _, route := range page.All("data-field", "route") {
		for _, name := range []string{"cluster", "priority", "weight", "ready", "draining", "shards", "ramp", "share", "taken", "why", "peer", "unnamed", "zones"} {
			value := ""
			for _, found := range route.All("data-field", name) {
				value = found.Text()
			}
			x.add("route "+name, value)
		}
	}
	return x
}

// textsOf are those of what isthmus explain -o json prints.
func textsOf(d *v1alpha1.Decision) texts {
	x := texts{}
	x.add("outcome", d.GetOutcome())
	x.add("reason", d.GetReason())
	x.add("address", d.GetAddress())
	x.add("cluster", d.GetCluster())
	x.add("gateway", d.GetGateway())
	x.add("rule", d.GetRule())
	x.add("revision", fmt.Sprint(d.GetRevision()))
	for _, note := range d.GetNotes() {
		x.add("note", note)
	}
	for _, r := range d.GetRoutes() {
		x.add("route cluster", r.GetCluster())
		x.add("route priority", fmt.Sprint(r.GetPriority()))
		x.add("route weight", fmt.Sprint(r.GetWeight()))
		x.add("route ready", fmt.Sprint(r.GetReady()))
		x.add("route draining", fmt.Sprint(r.GetDraining()))
		x.add("route shards", fmt.Sprint(r.GetShards()))
		x.add("route ramp", but(r.GetRamp(), " %"))
		x.add("route share", fmt.Sprintf("%.3g %%", r.GetShare()))
		x.add("route taken", map[bool]string{true: "taken", false: "no"}[r.GetTaken()])
		x.add("route why", r.GetReason())
		x.add("route peer", r.GetPeer())
		x.add("route unnamed", but(r.GetUnnamed(), "", "callers without a server name: "))
		x.add("route zones", but(r.GetZones(), "", "zones: "))
	}
	return x
}

// but is a value with its unit; empty without one.
func but[T comparable](value T, unit string, before ...string) string {
	if value == *new(T) {
		return ""
	}
	return strings.Join(before, "") + fmt.Sprint(value) + unit
}
