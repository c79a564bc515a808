package settings

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
)

// Secret says where a secret is: in a file, or in an environment variable. It has no
// place for the secret itself, so configurations, logs and errors can't show it.
type Secret struct {
	File string `yaml:"file,omitempty" json:"file,omitempty"` // read at every use, so it can be rotated
	Env  string `yaml:"env,omitempty" json:"env,omitempty"`   // the variable's name
}

// SecretType is the type of a Secret, for decoders: what stands in its stead must not be
// shown in an error, since it may be the secret itself. They say NoSecretHere.
var SecretType = reflect.TypeFor[Secret]()

// NoSecretHere is what is wrong with a secret that stands in a configuration.
const NoSecretHere = "a secret does not stand here itself; write where it is: {file: /run/secrets/name} or {env: NAME}"

// Check tells whether exactly one place is named. The error is about the key that the
// Secret stands at.
func (s *Secret) Check() error {
	if s == nil {
		return nil
	}
	if (s.File == "") == (s.Env == "") {
		return errors.New("want one of file and env: {file: /run/secrets/name} or {env: NAME}")
	}
	return nil
}

// Read returns the secret without the line break at its end; that of a nil Secret is
// empty.
func (s *Secret) Read() (string, error) {
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
