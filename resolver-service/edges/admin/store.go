package admin

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// Away says in words for how long, since when and why the config store can't be read,
// and what stands meanwhile: "away for 12s, since 14:03:11: …; serving revision 41, 3
// objects". It is empty while the store can be read. The time of day is this machine's.
func Away(s *v1alpha1.StatusResponse, now time.Time) string {
	store := s.GetStore()
	if store.GetError() == "" {
		return ""
	}
	since := time.UnixMilli(store.GetFailingUnixMs())
	layout := time.TimeOnly
	if now.Format(time.DateOnly) != since.Format(time.DateOnly) {
		layout = time.DateTime
	}
	stands := "nothing was read of it yet"
	if store.GetReady() {
		stands = fmt.Sprintf("serving revision %d, %d objects", s.GetRevision(), s.GetObjects())
	}
	// Backends begin their errors with what the reader has just read.
	why := strings.TrimPrefix(store.GetError(), "store "+store.GetName()+": ")
	return fmt.Sprintf("away for %s, since %s: %s; %s", max(0, now.Sub(since)).Round(time.Second), since.Format(layout), why, stands)
}

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
		Name: store.GetName(), Ready: store.GetReady(), Away: Away(status, time.Now()), Error: store.GetError(),
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
