package pages

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// trustView is the page of certificates.
type trustView struct {
	Certificates []*v1alpha1.TrustStatus
	Clusters     []string // that have roots of their own
	Own          bool     // there is a certificate of the service
	Now          time.Time
}

func trustPage(r *request) (*content, error) {
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	v := &trustView{Certificates: show.Certificates(now, r.now), Own: now.GetIdentity() != "insecure" && now.GetIdentity() != "", Now: r.now}
	for _, c := range v.Certificates {
		if c.GetCluster() != "" {
			v.Clusters = append(v.Clusters, c.GetCluster())
		}
	}
	slices.Sort(v.Clusters)
	v.Clusters = slices.Compact(v.Clusters)
	return &content{Page: v, Title: "Trust", Command: "isthmus trust", Live: true}, nil
}

// linksView is the page of linked clusters and invitations.
type linksView struct {
	*v1alpha1.InvitationsResponse
	Search      string
	Total, Next int // clusters, and the row that the next page begins with
	Consoles    map[string]string
}

func linksPage(r *request) (*content, error) {
	row, err := rowOf(r.FormValue)
	if err != nil {
		return nil, err
	}
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	answer, err := v1alpha1.NewLinkClient(r.Conn).Invitations(r.ctx, &v1alpha1.InvitationsRequest{})
	if err != nil {
		return nil, err
	}
	show.Linked(answer, now)
	v := &linksView{InvitationsResponse: answer, Search: strings.TrimSpace(r.FormValue("q")), Consoles: r.Consoles}
	all := slices.DeleteFunc(answer.GetClusters(), func(c *v1alpha1.LinkedCluster) bool { return !strings.Contains(c.GetCluster(), v.Search) })
	if v.Total, all = len(all), all[min(row, len(all)):]; len(all) > mostRows {
		all, v.Next = all[:mostRows], row+mostRows
	}
	answer.Clusters = all
	return &content{Page: v, Title: "Links", Command: "isthmus link list", Live: true}, nil
}

func revokePage(r *request) (*content, error) {
	if _, err := v1alpha1.NewLinkClient(r.Conn).Revoke(r.ctx, &v1alpha1.RevokeRequest{Id: r.FormValue("id")}); err != nil {
		return nil, err
	}
	return linksPage(r)
}

// linkView is the page of one cluster: its link, and what its trust takes.
type linkView struct {
	Cluster  string
	Pairs    [][2]string
	Gateways []string
	Refused  []string
	Trust    *v1alpha1.LinkTrustResponse // nil where it is not known
	Hurt     []hurt
	Console  string
}

func linkPage(r *request) (*content, error) {
	cluster := r.PathValue("cluster")
	if err := catalog.CheckCluster(cluster); err != nil {
		return nil, refuse(http.StatusBadRequest, "cluster: %v", err)
	}
	now, err := r.status()
	if err != nil {
		return nil, err
	}
	v := &linkView{Cluster: cluster, Console: r.Consoles[cluster], Pairs: show.PeerPairs(now, cluster, r.now)}
	for _, p := range now.GetPeers() {
		if p.GetCluster() != cluster {
			continue
		}
		for _, g := range p.GetGateways() {
			v.Gateways = append(v.Gateways, g.GetAddress()+": "+g.GetState()+strings.TrimSuffix(": "+g.GetError(), ": "))
		}
		for _, e := range p.GetRefused() {
			v.Refused = append(v.Refused, e.GetSource()+": "+e.GetError())
		}
	}
	if v.Trust, err = v1alpha1.NewLinkClient(r.Conn).Trust(r.ctx, &v1alpha1.LinkTrustRequest{Cluster: cluster}); err != nil {
		if len(v.Pairs) == 0 {
			return nil, err
		}
		v.Trust = nil
	}
	g, err := r.graph(&v1alpha1.GraphRequest{Via: cluster})
	if err != nil {
		return nil, err
	}
	v.Hurt = hurtBy(g, []string{cluster})
	return &content{Page: v, Title: "Cluster " + cluster, Command: "isthmus status --peer " + cluster, Live: true}, nil
}

// choice is a part of a list that a person can choose.
type choice struct{ Value, Text string }

// lacking is an app whose sidecars lack roots.
func lacking(app *v1alpha1.LackingApp) string {
	text := plain(show.Name(app.GetApp())) + ": " + show.Count(int(app.GetSidecars()), "sidecar")
	if app.GetMeets() {
		text += ", calls it or is called"
	}
	return text
}

// sidecarList is the page of sidecars.
type sidecarList struct {
	Search, Only string
	Sidecars     []*v1alpha1.SidecarState
	Total        int
	Row, Next    int
	Now          time.Time
}

func sidecarsPage(r *request) (*content, error) {
	row, err := rowOf(r.FormValue)
	if err != nil {
		return nil, err
	}
	v := &sidecarList{Search: strings.TrimSpace(r.FormValue("q")), Only: r.FormValue("only"), Row: row, Now: r.now}
	all, err := r.sidecars(&v1alpha1.SidecarsRequest{})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(s *v1alpha1.SidecarState) bool {
		return !strings.Contains(show.Name(s.GetApp()), v.Search) || v.Only == "not-ready" && s.GetState() == "ready" || v.Only == "behind" && show.Current(s)
	})
	v.Total, v.Sidecars = len(all), all[min(row, len(all)):]
	if len(v.Sidecars) > mostRows {
		v.Sidecars, v.Next = v.Sidecars[:mostRows], row+mostRows
	}
	command := "isthmus sidecars"
	if v.Only == "not-ready" || v.Only == "behind" {
		command += " --" + v.Only
	}
	return &content{Page: v, Title: "Sidecars", Command: command, Live: true}, nil
}

// callList is the page of calls, declared and seen.
type callList struct {
	Search, Only string
	Calls        []*v1alpha1.Call
	Row, Next    int
	Now          time.Time
}

// callsUntil are the calls that are wanted, so many at most: the rest is not read.
func callsUntil(r *request, most int, req *v1alpha1.CallsRequest, wanted func(*v1alpha1.Call) bool) (all []*v1alpha1.Call, err error) {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	stream, err := v1alpha1.NewInventoryClient(r.Conn).Calls(ctx, req)
	err = receive(stream, err, func(m *v1alpha1.CallsResponse) {
		for _, callee := range m.GetCallees() {
			for _, c := range show.CallsOf(callee) {
				if len(all) < most && wanted(c) {
					all = append(all, c)
				}
			}
		}
		if len(all) >= most {
			cancel()
		}
	})
	if len(all) >= most {
		err = nil
	}
	return all, err
}

func callsPage(r *request) (*content, error) {
	row, err := rowOf(r.FormValue)
	if err != nil {
		return nil, err
	}
	v := &callList{Search: strings.TrimSpace(r.FormValue("q")), Only: r.FormValue("only"), Row: row, Now: r.now}
	all, err := callsUntil(r, row+mostRows+1, &v1alpha1.CallsRequest{Seen: v.Only == "seen"}, func(c *v1alpha1.Call) bool {
		seen := show.Seen(c)
		return (strings.Contains(c.GetCaller(), v.Search) || strings.Contains(show.Name(c.GetCallee()), v.Search)) &&
			!(v.Only == "unseen" && (seen || !c.GetDeclared()) || v.Only == "undeclared" && (c.GetDeclared() || !seen) || v.Only == "cut-off" && !show.CutOff(c))
	})
	if err != nil {
		return nil, err
	}
	v.Calls = all[min(row, len(all)):]
	if len(v.Calls) > mostRows {
		v.Calls, v.Next = v.Calls[:mostRows], row+mostRows
	}
	command := "isthmus calls"
	switch v.Only {
	case "unseen", "undeclared":
		command += " --" + v.Only
	case "cut-off":
		command = "isthmus guard check"
	}
	return &content{Page: v, Title: "Calls", Command: command, Live: true}, nil
}

// eventList is the page of what has happened.
type eventList struct {
	Since    string
	Search   string
	Warnings bool
	Events   []*v1alpha1.Event
	Total    int
}

func eventsPage(r *request) (*content, error) {
	v := &eventList{Since: cmp.Or(r.FormValue("since"), "1h"), Search: strings.TrimSpace(r.FormValue("q")), Warnings: r.FormValue("warnings") == "1"}
	since, err := time.ParseDuration(v.Since)
	if err != nil || since <= 0 {
		return nil, refuse(http.StatusBadRequest, "since: want a time such as 10m, not %q", v.Since)
	}
	if v.Events, err = r.events(r.now.Add(-since)); err != nil {
		return nil, err
	}
	v.Events = slices.DeleteFunc(v.Events, func(e *v1alpha1.Event) bool {
		return v.Warnings && strings.EqualFold(e.GetLevel(), "info") || v.Search != "" && !strings.Contains(eventText(e), v.Search)
	})
	slices.Reverse(v.Events)
	v.Total = len(v.Events)
	v.Events = v.Events[:min(v.Total, mostRows)]
	command := "isthmus events --since " + v.Since
	if v.Warnings {
		command += " --warnings"
	}
	return &content{Page: v, Title: "Events", Command: command, Live: true}, nil
}

// ruleNamed is a rule; "nothing" where there is none.
func ruleNamed(rule string) string { return cmp.Or(plain(rule), "nothing") }

// counts is how many events there are, and are here.
func (v *eventList) counts() string {
	all := show.Count(v.Total, "event")
	if v.Total > len(v.Events) {
		all += fmt.Sprintf(", of which the newest %d are here", len(v.Events))
	}
	return all
}

// eventText is an event in one text, for a search.
func eventText(e *v1alpha1.Event) string {
	var b strings.Builder
	b.WriteString(e.GetMessage())
	for _, f := range e.GetFields() {
		b.WriteString(" " + f.GetName() + "=" + f.GetValue())
	}
	return b.String()
}
