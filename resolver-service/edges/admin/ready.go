package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// readiness says whether lookups can be answered. Reasons are why not; notes are what
// is wrong without standing in the way.
type readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []string `json:"reasons"`
	Notes   []string `json:"notes"`
}

// assess holds a service for ready once its store's full set is in and it has an
// identity. A store that fails later leaves what was read in place, so that is a note.
func assess(s *v1alpha1.StatusResponse, stopping bool) readiness {
	r := readiness{Reasons: []string{}, Notes: []string{}}
	if stopping {
		r.Reasons = append(r.Reasons, "shutting down")
	}
	name := "store " + s.GetStore().GetName() + ": "
	switch away := show.Away(s, time.Now()); {
	case !s.GetStore().GetReady() && away != "":
		r.Reasons = append(r.Reasons, name+away)
	case !s.GetStore().GetReady():
		r.Reasons = append(r.Reasons, name+"its full set has not arrived yet")
	case away != "":
		r.Notes = append(r.Notes, name+away)
	}
	for _, source := range s.GetSources() {
		r.source(source, s.GetStore().GetReady())
	}
	switch {
	case s.GetIdentity() == "":
		r.Reasons = append(r.Reasons, "no identity: "+s.GetIdentityError())
	case s.GetIdentityError() != "":
		r.Notes = append(r.Notes, "identity not renewed: "+s.GetIdentityError())
	}
	for _, t := range s.GetTrust() {
		if identity.ForOutsiders(t.GetUse()) && t.GetError() != "" {
			r.Notes = append(r.Notes, t.GetUse()+" not renewed: "+t.GetError())
		}
	}
	for _, o := range s.GetRefused() {
		r.Notes = append(r.Notes, "object refused: "+o.GetError())
	}
	r.Ready = len(r.Reasons) == 0
	return r
}

// source tells of a source of instances: objects wait for it when the service starts, for
// a while. One that fails later leaves what was read in place.
func (r *readiness) source(s *v1alpha1.SourceStatus, served bool) {
	if s.GetError() == "" {
		return
	}
	since := time.UnixMilli(s.GetFailingUnixMs())
	what := fmt.Sprintf("source %s: away for %s, since %s: %s", s.GetName(), time.Since(since).Round(time.Second), since.Format(time.TimeOnly), s.GetError())
	if served {
		r.Notes = append(r.Notes, what)
	} else {
		r.Reasons = append(r.Reasons, what)
	}
}

// readiness is that of now.
func (s *Server) readiness() readiness {
	stopping, _ := s.cfg.Stopping.Load()
	r := assess(s.cfg.Status(), stopping)
	if s.cfg.Ready != nil {
		reasons, notes := s.cfg.Ready()
		r.Reasons, r.Notes = append(r.Reasons, reasons...), append(r.Notes, notes...)
		r.Ready = len(r.Reasons) == 0
	}
	return r
}

// readyMetric tells what /readyz does, to those who only scrape.
func (s *Server) readyMetric() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "isthmus_ready", Help: "1 while /readyz answers that this replica is ready."},
		func() float64 { return truth(s.readiness().Ready) })
}

func (s *Server) readyz(w http.ResponseWriter, req *http.Request) {
	r := s.readiness()
	code := http.StatusOK
	if !r.Ready {
		code = http.StatusServiceUnavailable
	}
	if wantsJSON(req) {
		writeJSON(w, code, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	if r.Ready {
		fmt.Fprintln(w, "ok")
	}
	for _, reason := range r.Reasons {
		fmt.Fprintln(w, "not ready:", catalog.Printable(reason))
	}
	for _, note := range r.Notes {
		fmt.Fprintln(w, "note:", catalog.Printable(note))
	}
}

func wantsJSON(req *http.Request) bool {
	return req.URL.Query().Get("format") == "json" || strings.Contains(req.Header.Get("Accept"), "application/json")
}

func writeJSON(w http.ResponseWriter, code int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	_ = e.Encode(value) // the reader has gone if this fails
}
