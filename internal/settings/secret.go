// Package settings is what the configurations of stores and of the Dapr component share:
// secrets that stay where they are, and TLS.
package settings

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Secret says where a secret is: in a file, or in an environment variable. It has no place for the
// secret itself. So configurations, logs and errors can't show it.
type Secret struct {
	File string `yaml:"file,omitempty" json:"file,omitempty" file:""` // read at every use, so it can be rotated
	Env  string `yaml:"env,omitempty" json:"env,omitempty"`           // the variable's name
}

// Instead is the mistake of a secret in the configuration itself, and the cure: see
// [strict.Hidden].
func (Secret) Instead() (what, fix string) {
	return "a secret does not stand here itself", "write where it is: {file: /run/secrets/name} or {env: NAME}"
}

// Check tells whether exactly one place is named. The error is about the key that the
// Secret stands at.
func (s *Secret) Check() error {
	if s == nil {
		return nil
	}
	if (s.File == "") == (s.Env == "") {
		return &strict.Error{What: "does not say where the secret is", Fix: "write one of {file: /run/secrets/name} and {env: NAME}"}
	}
	return nil
}

// lastRead are the secrets that were read last, by file.
var lastRead sync.Map

// Read returns the secret without the line break at its end; that of a nil Secret is empty. While
// its file is missing or empty, the secret read before stays in use.
func (s *Secret) Read() (string, error) {
	secret, err := s.read()
	if s == nil || s.File == "" {
		return secret, err
	}
	if err == nil {
		lastRead.Store(s.File, secret)
	} else if last, ok := lastRead.Load(s.File); ok {
		return last.(string), nil
	}
	return secret, err
}

// Look tells why the secret can't be read now, whether it was before or not.
func (s *Secret) Look() error {
	_, err := s.read()
	return err
}

func (s *Secret) read() (string, error) {
	if s == nil {
		return "", nil
	}
	if err := s.Check(); err != nil {
		return "", err
	}
	if s.Env != "" {
		secret := withoutBreak(os.Getenv(s.Env))
		if secret == "" {
			return "", fmt.Errorf("the environment has no %s; set it, or name a file instead", s.Env)
		}
		return secret, nil
	}
	text, err := os.ReadFile(s.File)
	if err != nil {
		return "", fmt.Errorf("read the secret: %w", err)
	}
	secret := withoutBreak(string(text))
	if secret == "" {
		return "", fmt.Errorf("read the secret: %s is empty", s.File)
	}
	return secret, nil
}

// withoutBreak is a text without the line break that editors, and echo, put at its end.
func withoutBreak(text string) string { return strings.TrimRight(text, "\r\n") }
