package admin

import (
	"net/http"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/events"
)

// eventsPage is /debug/events, and what "isthmus events -o json" prints.
type eventsPage struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"`
	Items      []eventPage `json:"items"`
}

// eventPage is an event of it.
type eventPage struct {
	Number  uint64            `json:"number"`
	First   time.Time         `json:"first"`
	Last    time.Time         `json:"last"`
	Count   int               `json:"count"`
	Level   string            `json:"level"`
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields"`
}

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
	page := eventsPage{APIVersion: catalog.Version, Kind: "EventList", Items: []eventPage{}}
	for _, e := range s.cfg.Events.After(0, from) {
		page.Items = append(page.Items, eventPageOf(&e))
	}
	writeJSON(w, http.StatusOK, page)
}

func eventPageOf(e *events.Event) eventPage {
	page := eventPage{
		Number: e.Number, First: e.First.UTC(), Last: e.Last.UTC(), Count: e.Count,
		Level: strings.ToLower(e.Level.String()), Message: e.Message, Fields: map[string]string{},
	}
	for _, f := range e.Fields {
		page.Fields[f.Name] = f.Value
	}
	return page
}
