package admin

import (
	"net/http"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// events is /debug/events, and what "isthmus events -o json" prints.
func (s *Server) events(w http.ResponseWriter, req *http.Request) {
	var from time.Time
	if since := req.URL.Query().Get("since"); since != "" {
		length, err := time.ParseDuration(since)
		if err != nil || length < 0 {
			writeJSON(w, http.StatusBadRequest, map[string]string{"error": "since: want a length of time such as 10m"})
			return
		}
		from = time.Now().Add(-length)
	}
	var all []*v1alpha1.Event
	for _, e := range s.cfg.Events.After(0, from) {
		all = append(all, e.Wire())
	}
	w.Header().Set("Content-Type", "application/json")
	_ = show.PrintList(w, show.JSON, "EventList", all) // the reader has gone if this fails
}
