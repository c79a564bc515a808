// Package dapr is the config store on any Dapr configuration store of components-contrib: it takes
// the YAML of the component that the user has.
//
// Dapr's interface can subscribe to keys, and get them one by one. It can't list, can't write, and
// does not say when a subscription has ended; and to subscribe by it to Redis or PostgreSQL can end
// the process (redis_listen.go, postgres_listen.go). So the package takes from it only the parts
// that work well: the component's YAML, its settings, the clients made of them, and Subscribe for
// the other stores. A notification is only a hint. The values are read by the store's own protocol
// with the same settings, several keys at one moment; and writes are made so, in a transaction that
// writes a configstore.Head with them. A reader looks at the head every few seconds: this finds
// changes without a notification, and a server that is gone.
//
// Azure App Configuration has no such engine here and is read by Dapr's interface alone.
// docs/reference/stores/dapr.md says what that means for users.
package dapr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Config is the settings of a store on a Dapr component.
type Config struct {
	Component string `yaml:"component" json:"component" file:""`                    // the component's YAML, or the directory that has it
	Name      string `yaml:"name,omitempty" json:"name,omitempty"`                  // which, where there are several
	Secrets   string `yaml:"secrets,omitempty" json:"secrets,omitempty" file:"env"` // where secretKeyRef leads: a directory, a JSON file, or "env"
	Prefix    string `yaml:"prefix,omitempty" json:"prefix,omitempty"`              // of every key, so that two clusters can share a store
	Label     string `yaml:"label,omitempty" json:"label,omitempty"`                // of the settings in Azure

	// Heartbeat is how often a reader asks for the head where nothing is told.
	Heartbeat time.Duration `yaml:"heartbeat,omitempty" json:"heartbeat,omitempty"`
	// Rescan is how often a reader reads everything again, for what was written by hand.
	Rescan time.Duration `yaml:"rescan,omitempty" json:"rescan,omitempty"`
}

// The heartbeat and rescan of a Config that has none.
const (
	DefaultHeartbeat = 5 * time.Second
	DefaultRescan    = 30 * time.Second
)

// Store is a config store on a Dapr component. It is a configstore.ReadWriter.
type Store struct {
	configstore.KV
	config Config
	scope  configstore.Scope
	log    *slog.Logger
	scrub  *scrubber
	once   *notices
	life   *configstore.Life
	untold atomic.Bool // a Watch has found changes that nobody told of

	mu         sync.Mutex // guards all below
	loaded     component
	current    *lease         // nil: the next who needs one connects
	background sync.WaitGroup // what Dapr's code and the clients take their time to end
}

// lease is an engine and who uses it. It is closed when it is retired and nobody does.
type lease struct {
	ready chan struct{} // closed once it is connected, or err says why not
	err   error
	engine
	settings settings

	users   int // guarded by Store.mu, as is retired
	retired bool
}

var _ configstore.ReadWriter = (*Store)(nil)
var _ configstore.ManyGetter = (*Store)(nil)
var _ configstore.Indexer = (*Store)(nil)

// Open reads the component and checks it. It does not connect.
func Open(c Config, scope configstore.Scope, log *slog.Logger) (*Store, error) {
	if c.Component == "" {
		return nil, &strict.Error{Path: "component", What: "is missing", Fix: "give the file of a Dapr configuration store, such as ./redis.yaml"}
	}
	if !allowedPrefix.MatchString(c.Prefix) {
		return nil, &strict.Error{Path: "prefix", What: fmt.Sprintf("%q has a character that is not a letter, a digit or one of . _ : / { } -", c.Prefix)}
	}
	if err := secretSource(c.Secrets).check(); err != nil {
		return nil, err
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = DefaultHeartbeat
	}
	if c.Rescan == 0 {
		c.Rescan = DefaultRescan
	}
	s := &Store{config: c, scope: scope, log: log, scrub: &scrubber{}, once: &notices{log: log}, life: configstore.NewLife()}
	s.KV = configstore.NewKV(configstore.KVServer{
		Name: "dapr", Prefix: c.Prefix, Life: s.life, MaxObject: api.MaxObjectBytes, Some: s.some, Commit: s.commit, Fail: s.fail,
	})
	loaded, err := s.load()
	if err != nil {
		return nil, err
	}
	if loaded.kind == kindPostgres && loaded.property("notifyChannel", "pgNotifyChannel") == "" {
		log.Warn("the component has no notifyChannel; changes are found by looking", "every", c.Heartbeat)
	}
	return s, nil
}

// load reads the component anew, with its secrets.
func (s *Store) load() (component, error) {
	c, err := readComponent(s.config.Component, s.config.Name, secretSource(s.config.Secrets))
	if err != nil {
		return component{}, s.scrub.err(err)
	}
	s.scrub.add(c.secrets...)
	s.scrub.add(parts(c.property("connectionString"))...)
	if c.kind == kindPostgres {
		if p, err := parsePostgres(c); err == nil {
			s.scrub.add(p.pool.ConnConfig.Password)
		}
	}
	if path := c.property("kubeconfigPath"); c.kind == kindKubernetes && path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return component{}, fmt.Errorf("component %s: kubeconfigPath: %w", c.name, err)
		}
		c.kubeconfig = string(text)
	}
	if err := checkComponent(c, names{s.config.Prefix, s.scope}); err != nil {
		return component{}, s.scrub.err(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = c
	return c, nil
}

// where is how errors call the store.
func (s *Store) where() string {
	return settings{component: s.latest(), scrub: s.scrub}.where()
}

// latest is the component as it was read last.
func (s *Store) latest() component {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loaded
}

// acquire is the engine, connected. Who has it must release it.
func (s *Store) acquire(ctx context.Context) (*lease, error) {
	s.mu.Lock()
	l := s.current
	if l == nil {
		l = &lease{ready: make(chan struct{}), users: 1}
		s.current = l
		s.background.Go(func() { s.connect(l) })
	}
	l.users++
	s.mu.Unlock()
	var err error
	select {
	case <-l.ready:
		err = l.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		s.release(l)
		return nil, err
	}
	return l, nil
}

// connect makes the engine of a lease. Dapr's code asks Redis for its version with a time of its
// own, so it may take longer than who waits for it has.
func (s *Store) connect(l *lease) {
	defer s.release(l)
	defer close(l.ready)
	c, err := s.load() // a secret may have been changed
	if err != nil {
		c = s.latest() // until the files can be used again
	}
	l.settings = settings{component: c, names: names{s.config.Prefix, s.scope}, label: s.config.Label, scrub: s.scrub, log: s.log, once: s.once}
	if l.engine, l.err = connect(context.Background(), l.settings); l.err != nil {
		s.retire(l)
	}
}

// retire has the next who needs an engine connect another.
func (s *Store) retire(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.retired = true
	if s.current == l {
		s.current = nil
	}
}

// hold keeps an engine that the caller has from being closed, until one more release.
func (s *Store) hold(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.users++
}

// release lets go of an engine.
func (s *Store) release(l *lease) {
	s.mu.Lock()
	l.users--
	last := l.retired && l.users == 0
	s.mu.Unlock()
	if last && l.err == nil {
		s.background.Go(l.close)
	}
}

// renew has a new engine made, after a failure, if the component or a secret of it is
// another by now. Otherwise it is kept: its client connects again by itself.
func (s *Store) renew(l *lease) {
	c, err := s.load()
	if was := l.settings.component; err == nil && (c.kubeconfig != was.kubeconfig || !maps.Equal(c.properties, was.properties)) {
		s.retire(l)
	}
}

// closeTimeout is how long Close waits for connections to be ended in good manners.
const closeTimeout = time.Second

// Close ends every Watch, waits for it, and disconnects. What a server that does not
// answer holds up after that ends by itself, within half a minute.
func (s *Store) Close() error {
	if !s.life.Close() {
		return nil
	}
	s.mu.Lock()
	l := s.current
	s.mu.Unlock()
	if l != nil {
		s.hold(l)
		s.retire(l)
		s.release(l) // a subscription may have it still, whose end is under way
	}
	gone := make(chan struct{})
	go func() {
		s.background.Wait()
		close(gone)
	}()
	select {
	case <-gone:
	case <-time.After(closeTimeout):
	}
	return nil
}

// fail makes an error of the store's one that says what was tried, and where.
func (s *Store) fail(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, configstore.ErrClosed):
		return cause
	case cause != nil:
		err = cause
	}
	if isDenied(err) {
		err = fmt.Errorf("%w (%w)", err, configstore.ErrDenied)
	}
	err = advise(s.latest().kind, err)
	return s.scrub.err(fmt.Errorf("store dapr: %s at %s: %w", what, s.where(), err))
}

// notices says each thing once.
type notices struct {
	log  *slog.Logger
	said sync.Map
}

// Warn writes a warning, unless the key had one.
func (n *notices) Warn(key, text string, args ...any) {
	if _, said := n.said.LoadOrStore(key, true); !said {
		n.log.Warn(text, args...)
	}
}
