package dapr

import (
	"errors"
	"net/url"
	"regexp"
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

// parts is what may be secret in a connection string that an error may quote by halves: of
// a URL what stands before the host, and what is given as password or secret.
func parts(connection string) (secrets []string) {
	if _, rest, isURL := strings.Cut(connection, "://"); isURL {
		if user := rest[:max(strings.LastIndexByte(rest, '@'), 0)]; user != "" {
			_, password, _ := strings.Cut(user, ":")
			secrets = append(append(secrets, password), strings.FieldsFunc(password, func(c rune) bool { return strings.ContainsRune("/?#@:", c) })...)
		}
	}
	for _, m := range givenSecret.FindAllStringSubmatch(connection, -1) {
		secrets = append(secrets, m[1], strings.Trim(m[1], "'"))
	}
	return secrets
}

var givenSecret = regexp.MustCompile(`(?i)(?:password|secret)\s*=\s*('(?:[^'\\]|\\.)*'|[^\s;&]+)`)
