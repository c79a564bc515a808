package resolverservice

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/consul"
	"github.com/isthmus-mesh/isthmus/configstore/dapr"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/etcd"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes"
	"github.com/isthmus-mesh/isthmus/configstore/open"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Store says where the objects are: one of the backends.
type Store struct {
	Embedded   *embedded.Config   `yaml:"embedded"`
	File       *file.Config       `yaml:"file"`
	Consul     *consul.Config     `yaml:"consul"`
	Etcd       *etcd.Config       `yaml:"etcd"`
	Kubernetes *kubernetes.Config `yaml:"kubernetes"`
	Dapr       *dapr.Config       `yaml:"dapr"`
}

// backend is one of the backends with its settings, if it was chosen.
type backend struct {
	name   string
	chosen bool
	check  func() error // what is wrong with the settings, asking no server
	open   func(configstore.Scope, *slog.Logger) (configstore.ReadWriter, error)
}

// backends are all that there are, in the order of the documentation.
func (s Store) backends() []backend {
	return []backend{
		localOf("embedded", s.Embedded, open.Embedded),
		localOf("file", s.File, open.File),
		backendOf("consul", s.Consul, consul.Open),
		backendOf("etcd", s.Etcd, etcd.Open),
		backendOf("kubernetes", s.Kubernetes, kubernetes.Open),
		backendOf("dapr", s.Dapr, dapr.Open),
	}
}

// backendOf is a backend whose Open asks nothing of its server, and so can be tried when
// the configuration is read.
func backendOf[C any, S configstore.ReadWriter](name string, c *C, open func(C, configstore.Scope, *slog.Logger) (S, error)) backend {
	b := localOf(name, c, open)
	b.check = func() error {
		store, err := b.open(configstore.Scope{}, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		return store.Close()
	}
	return b
}

// localOf is a backend that is there once it is open.
func localOf[C any, S configstore.ReadWriter](name string, c *C, open func(C, configstore.Scope, *slog.Logger) (S, error)) backend {
	return backend{
		name: name, chosen: c != nil,
		check: func() error { return nil },
		open: func(scope configstore.Scope, log *slog.Logger) (configstore.ReadWriter, error) {
			store, err := open(*c, scope, log)
			if err != nil {
				return nil, err // and no store that is not nil
			}
			return store, nil
		},
	}
}

func (s Store) chosen() []backend {
	return slices.DeleteFunc(s.backends(), func(b backend) bool { return !b.chosen })
}

// Name is what status, metrics and errors call the store.
func (s Store) Name() string {
	if chosen := s.chosen(); len(chosen) == 1 {
		return chosen[0].name
	}
	return ""
}

// Open opens the store for a reader of so much of it. A store with a server need not be there:
// readers and writers see its errors.
func (s Store) Open(scope configstore.Scope, log *slog.Logger) (configstore.ReadWriter, error) {
	chosen := s.chosen()
	if len(chosen) != 1 {
		return nil, fmt.Errorf("store: names %d kinds of store; want one", len(chosen))
	}
	return chosen[0].open(scope, log)
}

// New tells whether the store would be made by opening it: an embedded one whose file is
// not there yet.
func (s Store) New() bool {
	if s.Embedded == nil {
		return false
	}
	_, err := os.Stat(s.Embedded.Path)
	return errors.Is(err, os.ErrNotExist)
}

// Path is the absolute path of a store that is a file or a directory, and empty for others.
func (s Store) Path() string {
	var path string
	switch {
	case s.Embedded != nil:
		path = s.Embedded.Path
	case s.File != nil:
		path = s.File.Path
	default:
		return ""
	}
	if absolute, err := filepath.Abs(path); err == nil {
		return absolute
	}
	return path
}

// announceNewStore logs that the store is about to be made, since a service that lost its
// store looks the same. It refuses to make one while there is one where the same path led
// when it was relative to the working directory.
func (c *Config) announceNewStore(log *slog.Logger) error {
	if !c.Store.New() {
		return nil
	}
	path := c.Store.Path()
	if former, err := filepath.Abs(c.formerStore); err == nil && c.formerStore != "" && former != path {
		if _, err := os.Stat(former); err == nil {
			return fmt.Errorf("store embedded: there is no file %s, and there is %s: paths are relative to the configuration file, "+
				"no longer to the working directory; move the file, or write its absolute path as store.embedded.path", path, former)
		}
	}
	log.Warn("making a new store without objects; if there was one, correct store.embedded.path or dataDir", "path", path)
	return nil
}

// LoadStore reads the store that a file names: an isthmus.yaml, or one with only the "store" of
// one. It is as strict as [Load] with the keys of the file.
func LoadStore(path string) (Store, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Store{}, fmt.Errorf("read configuration: %w; name an isthmus.yaml, or a file with only its \"store\"", err)
	}
	cfg := &Config{}
	doc := strict.Decode(path, text, cfg)
	if !doc.Has("store") && !doc.Has("cluster") {
		doc.Refuse("store", "is missing", "name the store, such as \"store: {file: {path: ./config}}\"")
	}
	cfg.setDefaults()
	cfg.place(path)
	checker{cfg, doc}.checkStore()
	return cfg.Store, doc.Err()
}

func (c *Config) defaultStore() {
	if len(c.Store.chosen()) == 0 {
		c.Store.Embedded = &embedded.Config{}
	}
	if e := c.Store.Embedded; e != nil && e.Path == "" {
		e.Path = filepath.Join(c.DataDir, "isthmus.db")
	}
}

func (c checker) checkStore() {
	chosen := c.Store.chosen()
	if len(chosen) > 1 {
		var names []string
		for _, b := range chosen {
			names = append(names, b.name)
		}
		c.doc.Refuse("store", strings.Join(names, " and ")+" exclude each other", "keep one of them")
		return
	}
	if f := c.Store.File; f != nil && f.Path == "" && !c.doc.Has("store.file.path") {
		c.doc.Refuse("store.file.path", "is missing", "name the directory with the objects' YAML files")
	}
	for _, b := range chosen {
		if path := "store." + b.name; !c.doc.Wrong(path) {
			c.doc.Merge(path, b.check())
		}
	}
}
