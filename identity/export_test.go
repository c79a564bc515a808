package identity

import (
	"context"
	"fmt"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// SetSentryTimeout shortens the time that Sentry has for one answer.
func (s *Source) SetSentryTimeout(d time.Duration) { s.origin.(*sentryOrigin).timeout = d }

// ParseID parses a SPIFFE ID in Dapr's form for apps.
func ParseID(s string) (ID, error) {
	id, err := spiffeid.FromString(s)
	if err != nil {
		return ID{}, fmt.Errorf("SPIFFE ID %q: %w", s, err)
	}
	return FromSPIFFE(id)
}

// OpenConnections is how many connections certificates keep open.
func (s *Source) OpenConnections() int {
	s.connections.mu.Lock()
	defer s.connections.mu.Unlock()
	return len(s.connections.open)
}

// KeptPath is the file in which [Sentry.Keep] has the certificate kept.
func (s *Source) KeptPath() (string, error) {
	o := s.origin.(*sentryOrigin)
	_, from, err := o.anchors(context.Background())
	return o.cachePath(from), err
}
