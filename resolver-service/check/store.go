package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// StoreAway says in words for how long, since when and why the config store can't be read,
// and what stands meanwhile: "away for 12s, since 14:03:11: …; serving revision 41, 3
// objects". It is empty while the store can be read. The time of day is this machine's.
func StoreAway(s *v1alpha1.StatusResponse, now time.Time) string {
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
