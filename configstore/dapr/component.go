package dapr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// component is a Dapr configuration store as its YAML has it, with every secret in place.
type component struct {
	name       string
	kind       string // one of the kinds below
	properties map[string]string
	secrets    []string // what of the properties must never be shown
	kubeconfig string   // the text of the file that a property names
}

// The kinds of configuration store that components-contrib has, and what else Dapr calls
// them.
const (
	kindRedis      = "configuration.redis"
	kindPostgres   = "configuration.postgresql"
	kindAzure      = "configuration.azure.appconfig"
	kindKubernetes = "configuration.kubernetes"
)

var kinds = map[string]string{
	kindRedis: kindRedis, kindPostgres: kindPostgres, "configuration.postgres": kindPostgres,
	kindAzure: kindAzure, kindKubernetes: kindKubernetes,
}

// document is a Component resource of Dapr. What it has besides, such as scopes and
// initTimeout, is for daprd and is let pass.
type document struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		Type     string  `yaml:"type"`
		Version  string  `yaml:"version"`
		Metadata []entry `yaml:"metadata"`
	} `yaml:"spec"`
	Auth struct {
		SecretStore string `yaml:"secretStore"`
	} `yaml:"auth"`
}

// entry is one setting of a component.
type entry struct {
	Name   string    `yaml:"name"`
	Value  yaml.Node `yaml:"value"`
	EnvRef string    `yaml:"envRef"`
	Secret *struct {
		Name string `yaml:"name"`
		Key  string `yaml:"key"`
	} `yaml:"secretKeyRef"`
}

// componentLimit is how long a file of components can be.
const componentLimit = 1 << 20

// readComponent finds the configuration store in a file, or in the YAML files of a
// directory, and resolves its secrets.
func readComponent(path, name string, secrets secretSource) (component, error) {
	files, err := componentFiles(path)
	if err != nil {
		return component{}, err
	}
	var found []document
	var names []string
	for _, file := range files {
		text, err := readLimited(file)
		if err != nil {
			return component{}, err
		}
		documents, err := parseDocuments(text)
		if err != nil {
			return component{}, fmt.Errorf("%s: %w", file, err)
		}
		for _, d := range documents {
			names = append(names, d.Metadata.Name)
			if name == "" || d.Metadata.Name == name {
				found = append(found, d)
			}
		}
	}
	switch {
	case len(names) == 0:
		return component{}, fmt.Errorf("%s has no Dapr configuration store; want a Component of apiVersion dapr.io/v1alpha1 with a spec.type such as %s", path, kindRedis)
	case len(found) == 0:
		return component{}, &strict.Error{Path: "name", What: fmt.Sprintf("%s has no configuration store %q, but %s", path, name, strings.Join(names, ", "))}
	case len(found) > 1 && name == "":
		return component{}, fmt.Errorf("%s has %d configuration stores (%s); say which one with name", path, len(found), strings.Join(names, ", "))
	case len(found) > 1:
		return component{}, &strict.Error{Path: "name", What: fmt.Sprintf("%s has %d configuration stores %q", path, len(found), name), Fix: "give each a name of its own"}
	}
	c, err := resolve(found[0], secrets)
	if err != nil {
		return component{}, fmt.Errorf("%s: component %s: %w", path, found[0].Metadata.Name, err)
	}
	return c, nil
}

func componentFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, &strict.Error{Path: "component", What: err.Error(), Fix: "give the YAML of a Dapr configuration store, or the directory that has it"}
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, strict.Below("component", err)
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); (ext == ".yaml" || ext == ".yml") && !strings.HasPrefix(e.Name(), ".") {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}

func readLimited(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, strict.Below("component", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, componentLimit+1))
	if err != nil {
		return nil, strict.Below("component", err)
	}
	if len(text) > componentLimit {
		return nil, &strict.Error{Path: "component", What: fmt.Sprintf("%s is longer than %d bytes", file, componentLimit), Fix: "name the file of a Dapr component"}
	}
	return text, nil
}

// parseDocuments is the configuration stores among the documents of a file. Other
// resources of Dapr stand in the same files and are passed over.
func parseDocuments(text []byte) ([]document, error) {
	var found []document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var d document
		err := decoder.Decode(&d)
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, hideValues(err)
		}
		if d.Kind == "Component" && strings.HasPrefix(d.APIVersion, "dapr.io/") && strings.HasPrefix(d.Spec.Type, "configuration.") {
			found = append(found, d)
		}
	}
}

// hideValues makes an error of YAML's decoder one without the text that it quotes, which
// may be a password.
func hideValues(err error) error {
	var types *yaml.TypeError
	if !errors.As(err, &types) {
		line, _, _ := strings.Cut(err.Error(), ":")
		if rest, ok := strings.CutPrefix(err.Error(), "yaml: line "); ok {
			line, _, _ = strings.Cut(rest, ":")
			return fmt.Errorf("line %s: it is not YAML", line)
		}
		return fmt.Errorf("it is not YAML (%s)", line)
	}
	lines := make([]string, len(types.Errors))
	for i, text := range types.Errors {
		lines[i], _, _ = strings.Cut(text, ":")
	}
	return fmt.Errorf("%s: not of the form of a Dapr Component", strings.Join(lines, ", "))
}

// resolve makes plain text of every setting.
func resolve(d document, secrets secretSource) (component, error) {
	c := component{name: d.Metadata.Name, kind: kinds[d.Spec.Type], properties: map[string]string{}}
	switch {
	case c.kind == "":
		return component{}, fmt.Errorf("spec.type: unknown configuration store %q; want %s, %s, %s or %s", d.Spec.Type, kindRedis, kindPostgres, kindAzure, kindKubernetes)
	case d.Spec.Version != "" && d.Spec.Version != "v1":
		return component{}, fmt.Errorf("spec.version: %s has no version %q; want v1", d.Spec.Type, d.Spec.Version)
	}
	for i, e := range d.Spec.Metadata {
		if e.Name == "" {
			return component{}, fmt.Errorf("spec.metadata[%d]: has no name", i)
		}
		value, secret, err := e.text(d.Auth.SecretStore, secrets)
		if err != nil {
			return component{}, fmt.Errorf("spec.metadata: %s: %w", e.Name, err)
		}
		c.properties[e.Name] = value
		if sensitive(e.Name) || secret && !plain(e.Name) {
			c.secrets = append(c.secrets, value)
		}
	}
	return c, nil
}

// text is a setting's value, and whether it came from where secrets are.
func (e *entry) text(store string, secrets secretSource) (value string, secret bool, err error) {
	switch {
	case e.Secret != nil && e.Secret.Name != "":
		value, err = secrets.read(store, e.Secret.Name, e.Secret.Key)
		return value, true, err
	case e.EnvRef != "":
		value, ok := os.LookupEnv(e.EnvRef)
		if !ok {
			return "", false, fmt.Errorf("envRef: the environment has no %s; set it", e.EnvRef)
		}
		return value, false, nil
	case e.Value.Kind == 0 || e.Value.Tag == "!!null":
		return "", false, nil
	case e.Value.Kind == yaml.ScalarNode:
		return e.Value.Value, false, nil
	}
	var any any // Dapr takes lists and mappings as their JSON
	if err := e.Value.Decode(&any); err != nil {
		return "", false, errors.New("value: want a text")
	}
	text, err := json.Marshal(any)
	if err != nil {
		return "", false, errors.New("value: want a text")
	}
	return string(text), false, nil
}

// sensitive tells whether a setting of this name is, or may hold, a secret.
func sensitive(name string) bool {
	name = strings.ToLower(name)
	return name == "url" || slices.ContainsFunc([]string{"password", "secret", "token", "connectionstring", "clientkey", "accesskey", "certificate"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// plain tells whether a setting of this name is no secret wherever it came from: errors
// have to name the server.
func plain(name string) bool {
	return slices.Contains([]string{
		"redishost", "redisport", "redisusername", "redisdb", "redistype", "sentinelmastername", "sentinelusername",
		"host", "hostaddr", "port", "user", "database", "table", "notifychannel", "pgnotifychannel", "configmapname", "kubeconfigpath",
	}, strings.ToLower(name))
}

// property is a setting by its name, which Dapr reads in any case.
func (c component) property(names ...string) string {
	for _, name := range names {
		for key, value := range c.properties {
			if strings.EqualFold(key, name) {
				return value
			}
		}
	}
	return ""
}
