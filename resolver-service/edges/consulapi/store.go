package consulapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/throttle"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology"
)

const (
	storeVersion = 1                // the format of the files; another one is not read
	saveAgain    = 10 * time.Second // how often the registry tries again what could not be saved
	mostReported = 100              // how many troubles a status names
)

// store keeps registered services over a restart, each service in a file of its own, as a
// Consul agent does. One without a directory keeps nothing.
type store struct {
	dir   string
	often *throttle.Log

	mu      sync.Mutex // a status does not wait for a disk that hangs
	unsaved map[topology.InstanceKey]error
}

func newStore(dir string, log *slog.Logger) *store {
	return &store{dir: dir, often: throttle.New(log, throttle.Interval), unsaved: map[topology.InstanceKey]error{}}
}

// saved is the content of a file.
type saved struct {
	Version   int                           `json:"version"`
	Namespace string                        `json:"namespace"`
	App       string                        `json:"app"`
	Sender    netip.Addr                    `json:"sender"`
	Since     int64                         `json:"since"`
	Service   *api.AgentServiceRegistration `json:"service"`
	Checks    []savedCheck                  `json:"checks"`

	specs []*checkSpec
}

// savedCheck is how a check of the service stood.
type savedCheck struct {
	ID    string           `json:"id"`
	Shown *api.HealthCheck `json:"shown"`
}

// path is the file of a service. IDs are free text, so they do not name it.
func (st *store) path(app catalog.App, id string) string {
	sum := sha256.Sum256([]byte(app.String() + "\x00" + id))
	return filepath.Join(st.dir, hex.EncodeToString(sum[:])+".json")
}

// save keeps a service over a restart, and returns once it is on the disk. One that can't be
// saved stands all the same: the status names it, and the registry tries again.
func (st *store) save(app catalog.App, s *service) (saved bool) {
	if st.dir == "" {
		return true
	}
	err := st.write(app, s)
	if err != nil {
		err = fmt.Errorf("it can't be saved, so a restart would lose it, or bring back what it was: %w; make room in %s, or let this user write there; it is tried again every %s", err, st.dir, saveAgain)
	}
	switch before := st.note(topology.InstanceKey{App: app, ID: s.def.ID}, err); {
	case err != nil && !before:
		st.often.Error("unsaved "+app.String(), "a registered service is not kept over a restart", "app", app.String(), "service", s.def.ID, "err", err)
	case err == nil && before:
		st.often.Info("saved "+app.String(), "a registered service is kept over a restart again", "app", app.String(), "service", s.def.ID)
	}
	return err == nil
}

func (st *store) write(app catalog.App, s *service) error {
	content := saved{Version: storeVersion, Namespace: app.Namespace, App: app.ID, Sender: s.sender, Since: s.since.at, Service: s.def}
	for id, c := range s.checks {
		content.Checks = append(content.Checks, savedCheck{id, c.shown})
	}
	if err := os.MkdirAll(st.dir, 0o700); err != nil {
		return err
	}
	path := st.path(app, s.def.ID)
	_, err := os.Stat(path)
	before := err == nil
	if err := atomicfile.Write(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(&content) }); err != nil || before {
		return err
	}
	return atomicfile.SyncDirectory(st.dir)
}

// note remembers that a service is saved, or why not, and tells whether it was not before.
func (st *store) note(key topology.InstanceKey, err error) (before bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if _, before = st.unsaved[key]; err == nil {
		delete(st.unsaved, key)
	} else {
		st.unsaved[key] = err
	}
	return before
}

// troubles are the services that are not kept over a restart, and why.
func (st *store) troubles() map[topology.InstanceKey]error {
	st.mu.Lock()
	defer st.mu.Unlock()
	return maps.Clone(st.unsaved)
}

// remove removes the file of a service that is deregistered.
func (st *store) remove(app catalog.App, id string) {
	st.note(topology.InstanceKey{App: app, ID: id}, nil)
	if st.dir == "" {
		return
	}
	err := os.Remove(st.path(app, id))
	if err == nil {
		err = atomicfile.SyncDirectory(st.dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		st.often.Error("file "+app.String(), "the file of a service that is deregistered can't be removed; a restart of the service would bring it back", "app", app.String(), "service", id, "err", err)
	}
}

// load reads what a former life has left. It leaves out a file that can't be used, with a
// warning.
func (st *store) load(log *slog.Logger) (all []*saved) {
	if st.dir == "" {
		return nil
	}
	entries, err := os.ReadDir(st.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the services that were registered can't be read", "directory", st.dir, "err", err)
	}
	for _, e := range entries {
		path := filepath.Join(st.dir, e.Name())
		if !strings.HasSuffix(path, ".json") {
			_ = atomicfile.Sweep(path, 0) // what a killed writer left is no trouble
			continue
		}
		text, err := os.ReadFile(path)
		var s *saved
		if err == nil {
			s, err = parseSaved(text)
		}
		if err != nil {
			log.Warn("a service that was registered can't be read; the rest stand", "file", path, "err", err)
			continue
		}
		all = append(all, s)
	}
	return all
}

// parseSaved reads the text of a file, and holds it to what a registration is held to.
func parseSaved(text []byte) (s *saved, err error) {
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	switch {
	case s == nil || s.Version != storeVersion:
		return nil, fmt.Errorf("it is not of version %d, which this program reads", storeVersion)
	case s.Service == nil || s.Service.ID == "" || s.Service.Name != s.App:
		return nil, errors.New("it names no service of its app")
	}
	if err := (catalog.App{Namespace: s.Namespace, ID: s.App}).Check(); err != nil {
		return nil, err
	}
	for _, c := range s.Checks {
		if c.Shown == nil || !validStatus(c.Shown.Status) {
			return nil, errors.New("it has a check without a status")
		}
	}
	s.specs, err = readService(s.Service)
	return s, err
}

// restore takes in what a former life has left, without its checks being run yet.
func (r *registry) restore(all []*saved) (services int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, was := range all {
		r.clock.Heard(was.Since)
		o := r.own(catalog.App{Namespace: was.Namespace, ID: was.App})
		address, err := r.targets.instance(was.Service, was.Sender)
		s := &service{
			def: was.Service, sender: was.Sender, address: address, since: since{was.Since, true}, unverified: address.IsValid() && !r.targets.rules.OwnAddress(was.Sender, address.Addr()),
		}
		if err = cmp.Or(err, o.fits(s, was.specs)); err != nil {
			r.log.Warn("a service that was registered can't be taken over", "app", o.app.String(), "service", was.Service.ID, "err", err)
			continue
		}
		if s.unverified && !r.delegates.Allow(o.app, was.Sender, address.Addr()) {
			r.log.Warn("a service that was registered is not taken over: its address is not its sender's, and no entry of instances.delegates allows it",
				"app", o.app.String(), "service", was.Service.ID, "address", address.String(), "from", was.Sender.String())
			continue
		}
		before := map[string]*check{}
		for _, c := range was.Checks {
			before[c.ID] = &check{shown: c.Shown, succeeded: c.Shown.Status == passing}
		}
		for _, spec := range was.specs { // a former version may have kept more than may be told
			if c := before[spec.CheckID]; c != nil && spec.kind != "ttl" && r.targets.subject(o.app, spec, s.sender).Unverified {
				c.shown.Output = ""
			}
		}
		r.put(o, s, was.specs, before)
		services++
	}
	return services
}

// Status is the state of the API as a source of instances, with its troubles.
func (s *Server) Status() *v1alpha1.SourceStatus {
	answer := &v1alpha1.SourceStatus{Name: Source, Ready: true, Instances: uint32(s.Instances())}
	if err := s.unread.Load(); err != nil {
		answer.Refused = append(answer.Refused, &v1alpha1.RefusedObject{Source: "tokens", Error: "they can't be read again; those of before hold: " + (*err).Error()})
	}
	all := s.registry.store.troubles()
	keys := slices.SortedFunc(maps.Keys(all), func(a, b topology.InstanceKey) int {
		return cmp.Or(a.App.Compare(b.App), strings.Compare(a.ID, b.ID))
	})
	for _, key := range keys[:min(len(keys), mostReported)] {
		answer.Refused = append(answer.Refused, &v1alpha1.RefusedObject{
			Source: fmt.Sprintf("service %s of %s", quoted(key.ID), key.App), Error: all[key].Error(),
		})
	}
	return answer
}
