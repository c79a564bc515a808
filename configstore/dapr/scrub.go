package dapr

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// scrubber takes secrets out of what Dapr's code and the clients below it say.
type scrubber struct {
	mu      sync.RWMutex
	secrets []string // longest first
}

// shortestSecret is the length from which on a secret is taken out: what is shorter
// stands in every other word, and protects nothing.
const shortestSecret = 3

// add notes secrets, in each form in which they may be said.
func (s *scrubber) add(secrets ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, secret := range secrets {
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), strings.Trim(url.UserPassword("", secret).String(), ":")} {
			if len(form) >= shortestSecret && !slices.Contains(s.secrets, form) {
				s.secrets = append(s.secrets, form)
			}
		}
	}
	slices.SortStableFunc(s.secrets, func(a, b string) int { return len(b) - len(a) })
}

func (s *scrubber) text(text string) string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, secret := range s.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}

// err is an error without secrets in its text. It still is what the error was.
func (s *scrubber) err(err error) error {
	if err == nil {
		return nil
	}
	was := strings.TrimSpace(err.Error())
	if text := s.text(was); text != err.Error() {
		return scrubbed{text, err}
	}
	return err
}

type scrubbed struct {
	text string
	err  error
}

func (e scrubbed) Error() string { return e.text }

// Is keeps the sentinels, without handing out the error with its text.
func (e scrubbed) Is(target error) bool { return errors.Is(e.err, target) }
