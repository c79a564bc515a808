package identity

import "time"

// SetSentryTimeout shortens the time that Sentry has for one answer.
func (s *Source) SetSentryTimeout(d time.Duration) { s.origin.(*sentryOrigin).timeout = d }
