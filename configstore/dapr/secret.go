package dapr

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// secretSource is where the secrets are that a component refers to by secretKeyRef. It
// stands in for the secret stores of Dapr, which only daprd runs: a directory
// <name>/<key>, as Kubernetes mounts secrets; a file of JSON, as secretstores.local.file
// has it; or "env", for secretstores.local.env.
type secretSource string

const secretsOfEnvironment secretSource = "env"

// secretFileLimit is how long a secret, or a file of all secrets, can be.
const secretFileLimit = 1 << 20

// read returns a secret. Dapr takes the name for the key where there is none.
func (s secretSource) read(store, name, key string) (string, error) {
	if key == "" {
		key = name
	}
	if s == "" {
		from := "a secret store"
		if store != "" {
			from = "the secret store " + store
		}
		return "", fmt.Errorf("secretKeyRef: only daprd reads %s; set secrets of this store to a directory with a file %s/%s, to a JSON file, or to \"env\"", from, name, key)
	}
	if s == secretsOfEnvironment {
		text, ok := os.LookupEnv(name)
		if !ok || text == "" {
			return "", fmt.Errorf("secretKeyRef: the environment has no %s; set it", name)
		}
		return text, nil
	}
	info, err := os.Stat(string(s))
	if err != nil {
		return "", fmt.Errorf("secretKeyRef: secrets: %w", err)
	}
	if info.IsDir() {
		return s.fromDirectory(name, key)
	}
	return s.fromFile(name, key)
}

func (s secretSource) fromDirectory(name, key string) (string, error) {
	path := filepath.Join(name, key)
	if !filepath.IsLocal(name) || !filepath.IsLocal(key) {
		return "", fmt.Errorf("secretKeyRef: %s is not a file below %s", path, s)
	}
	text, err := os.ReadFile(filepath.Join(string(s), path))
	if err != nil && name == key {
		if alone, aloneErr := os.ReadFile(filepath.Join(string(s), name)); aloneErr == nil {
			text, err = alone, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("secretKeyRef: %w; make it, or correct the name and key", err)
	}
	if len(text) > secretFileLimit {
		return "", fmt.Errorf("secretKeyRef: %s is longer than %d bytes", path, secretFileLimit)
	}
	return strings.TrimRight(string(text), "\r\n"), nil
}

// fromFile looks the secret up as secretstores.local.file does, with values nested or not.
func (s secretSource) fromFile(name, key string) (string, error) {
	text, err := os.ReadFile(string(s))
	if err != nil {
		return "", fmt.Errorf("secretKeyRef: secrets: %w", err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return "", fmt.Errorf("secretKeyRef: secrets: %s is no JSON object of secrets", s) // the error may quote one
	}
	value, ok := lookUp(all, name, key)
	if !ok {
		return "", fmt.Errorf("secretKeyRef: %s has no secret %q with a key %q; add it, or correct the name and key", s, name, key)
	}
	return value, nil
}

func lookUp(all map[string]any, name, key string) (string, bool) {
	var at any = all
	for _, part := range strings.Split(name, ":") { // its separator of nested names
		m, ok := at.(map[string]any)
		if !ok {
			return "", false
		}
		at = m[part]
	}
	if m, ok := at.(map[string]any); ok {
		at = m[key]
	}
	switch v := at.(type) {
	case string:
		return v, true
	case bool, float64:
		return fmt.Sprint(v), true
	}
	return "", false
}

// check tells whether the place can be one at all.
func (s secretSource) check() error {
	if s == "" || s == secretsOfEnvironment {
		return nil
	}
	if _, err := os.Stat(string(s)); err != nil {
		return &strict.Error{Path: "secrets", What: err.Error(), Fix: "name a directory <name>/<key>, a JSON file, or \"env\""}
	}
	return nil
}
