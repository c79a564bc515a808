package objects

import (
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// mostChanges is how many changes of objects are remembered.
const mostChanges = 1000

// objectChange is one write that lookups follow.
type objectChange struct {
	at     time.Time
	key    catalog.Key
	result string // created, changed or deleted
	by     string // empty where this service has not written it
}

// note remembers a change; mu is held for writing.
func (f *Feed) note(key catalog.Key, result string) {
	if len(f.changes) == mostChanges {
		f.changes = slices.Delete(f.changes, 0, mostChanges/10)
	}
	f.changes = append(f.changes, objectChange{time.Now(), key, result, f.writers[key]})
}

// LastChange tells of the newest change before a moment of one of some objects, for people. It is
// empty where none is known since the service started.
func (f *Feed) LastChange(before time.Time, keys []catalog.Key) string {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, c := range slices.Backward(f.changes) {
		if !c.at.After(before) && slices.Contains(keys, c.key) {
			text := c.key.String() + " was " + c.result
			if c.by != "" {
				text += " by " + c.by
			}
			return text + " at " + c.at.UTC().Format("15:04:05Z")
		}
	}
	return ""
}
