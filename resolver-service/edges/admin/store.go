package admin

import (
	"net/http"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/show"
)

// storePage is the config store as /debug/store shows it.
type storePage struct {
	Name     string        `json:"name"`
	Ready    bool          `json:"ready"` // the full set is in
	Away     string        `json:"away"`  // in words; empty while it can be read
	Error    string        `json:"error"`
	Since    *time.Time    `json:"since"` // of the error
	Version  string        `json:"version"`
	Revision uint64        `json:"revision"`
	Objects  uint32        `json:"objects"`
	Refused  []refusedPage `json:"refused"`
}

type refusedPage struct {
	Source string `json:"source"`
	Error  string `json:"error"`
}

func (s *Server) store(w http.ResponseWriter, _ *http.Request) {
	status := s.cfg.Status()
	store := status.GetStore()
	page := storePage{
		Name: store.GetName(), Ready: store.GetReady(), Away: show.Away(status, time.Now()), Error: store.GetError(),
		Version: store.GetVersion(), Revision: status.GetRevision(), Objects: status.GetObjects(), Refused: []refusedPage{},
	}
	if page.Error != "" {
		since := time.UnixMilli(store.GetFailingUnixMs())
		page.Since = &since
	}
	for _, r := range status.GetRefused() {
		page.Refused = append(page.Refused, refusedPage{Source: r.GetSource(), Error: r.GetError()})
	}
	writeJSON(w, http.StatusOK, page)
}
