// Package contexts keeps named services in a file, so that the command line is told once how
// to reach each of them and as whom.
package contexts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Context says which service to ask, and as whom. Its fields are the flags of the same names.
type Context struct {
	Name              string `yaml:"name" json:"name"`
	Server            string `yaml:"server,omitempty" json:"server,omitempty"`
	Socket            string `yaml:"socket,omitempty" json:"socket,omitempty" file:""`
	Kubeconfig        string `yaml:"kubeconfig,omitempty" json:"kubeconfig,omitempty" file:""`
	KubeContext       string `yaml:"kubeContext,omitempty" json:"kubeContext,omitempty"`
	KubeNamespace     string `yaml:"kubeNamespace,omitempty" json:"kubeNamespace,omitempty"`
	Cluster           string `yaml:"cluster,omitempty" json:"cluster,omitempty"`
	ServerIdentity    string `yaml:"serverIdentity,omitempty" json:"serverIdentity,omitempty"`
	Identity          string `yaml:"identity,omitempty" json:"identity,omitempty" file:""`
	Sentry            string `yaml:"sentry,omitempty" json:"sentry,omitempty"`
	TrustAnchors      string `yaml:"trustAnchors,omitempty" json:"trustAnchors,omitempty" file:""`
	SentryNamespace   string `yaml:"sentryNamespace,omitempty" json:"sentryNamespace,omitempty"`
	SentryTrustDomain string `yaml:"sentryTrustDomain,omitempty" json:"sentryTrustDomain,omitempty"`
	AppTrustDomain    string `yaml:"appTrustDomain,omitempty" json:"appTrustDomain,omitempty"`
	Insecure          bool   `yaml:"insecure,omitempty" json:"insecure,omitempty"`
}

// File is a file of contexts.
type File struct {
	Current  string    `yaml:"current,omitempty"` // used where none is named
	Contexts []Context `yaml:"contexts"`

	path string
	mode fs.FileMode
}

// Path is where the file is: ISTHMUS_CONTEXTS, or else isthmus/contexts.yaml in the user's
// directory of configurations.
func Path() string {
	if path := os.Getenv("ISTHMUS_CONTEXTS"); path != "" {
		return path
	}
	home, _ := os.UserHomeDir() // without one it is relative, and there is no file
	return filepath.Join(cmp.Or(os.Getenv("XDG_CONFIG_HOME"), filepath.Join(home, ".config")), "isthmus", "contexts.yaml")
}

// Load reads a file; one that is not there has no contexts. The error has a line for each
// mistake.
func Load(path string) (*File, error) {
	f := &File{path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read contexts: %w; let this user read the file, or name another by ISTHMUS_CONTEXTS", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read contexts: %w", err)
	}
	f.mode = info.Mode().Perm()
	doc := strict.Decode(path, text, f)
	first := map[string]int{}
	for i, c := range f.Contexts {
		at := fmt.Sprintf("contexts[%d]", i)
		if doc.Wrong(at) {
			continue
		}
		if c.Name == "" {
			doc.Refuse(at, "has no name", "write name: west")
		}
		if c.Server == "" && c.Socket == "" && !c.OnKubernetes() {
			doc.Refuse(at, "has no server", `write server: "127.0.0.1:7400", or kubeContext: west`)
		}
		if c.OnKubernetes() && (c.Server != "" || c.Socket != "") {
			doc.Refuse(at, "has a server and a kubeconfig", "keep one of them")
		}
		if j, doubled := first[c.Name]; doubled {
			doc.Refuse(at+".name", fmt.Sprintf("is that of contexts[%d], too", j), "give each context a name of its own")
		} else {
			first[c.Name] = i
		}
	}
	return f, doc.Err()
}

// OnKubernetes tells whether the service is reached through a Kubernetes API server.
func (c Context) OnKubernetes() bool { return c.Kubeconfig != "" || c.KubeContext != "" }

// ErrNoContext says that a file does not have the context that was named.
var ErrNoContext = errors.New("no such context")

// Find returns the context of a name, with paths that are relative to the file made so. It
// refuses one that names keys in a file that others may read or write: they could have the
// keys used for a service of their own. A kubeconfig names keys, and programs that run.
func (f *File) Find(name string) (Context, error) {
	i := f.index(name)
	if i < 0 {
		return Context{}, noContext(fmt.Sprintf("there is no context %q in %s; %s", name, f.path, f.others(name)))
	}
	c := f.Contexts[i]
	keys := "identity"
	if c.Kubeconfig != "" {
		keys = "kubeconfig"
	}
	if (c.Identity != "" || c.Kubeconfig != "") && f.mode&0o077 != 0 {
		return Context{}, fmt.Errorf("context %s names keys (%s), and others may use %s (mode %04o): chmod 600 %[3]s", name, keys, f.path, f.mode)
	}
	strict.Place(&c, filepath.Dir(f.path))
	return c, nil
}

// noContext is an error that is ErrNoContext, in words of its own.
type noContext string

// Error is that of error.
func (n noContext) Error() string { return string(n) }

// Is makes it ErrNoContext.
func (noContext) Is(target error) bool { return target == ErrNoContext }

func (f *File) index(name string) int {
	return slices.IndexFunc(f.Contexts, func(c Context) bool { return c.Name == name })
}

// Names are those of all contexts.
func (f *File) Names() []string {
	var names []string
	for _, c := range f.Contexts {
		names = append(names, c.Name)
	}
	return names
}

func (f *File) others(name string) string {
	names := f.Names()
	if len(names) == 0 {
		return "isthmus context set makes one"
	}
	return strict.Hint(name, names, "it has "+strings.Join(names, ", "))
}

// Set puts a context in, in place of one of the same name, and tells whether it is new.
func (f *File) Set(c Context) (added bool) {
	if i := f.index(c.Name); i >= 0 {
		f.Contexts[i] = c
		return false
	}
	f.Contexts = append(f.Contexts, c)
	return true
}

// Use makes a context the current one.
func (f *File) Use(name string) error {
	if _, err := f.Find(name); err != nil {
		return err
	}
	f.Current = name
	return nil
}

// Delete takes a context out. None is the current one after the current one went.
func (f *File) Delete(name string) error {
	i := f.index(name)
	if i < 0 {
		_, err := f.Find(name)
		return err
	}
	f.Contexts = slices.Delete(f.Contexts, i, i+1)
	if f.Current == name {
		f.Current = ""
	}
	return nil
}

// Save writes the file, for this user alone.
func (f *File) Save() error {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	err := encoder.Encode(f)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(f.path), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(f.path, func(w io.Writer) error { _, err := w.Write(text.Bytes()); return err })
	}
	if err != nil {
		return fmt.Errorf("write contexts: %w", err)
	}
	return nil
}
