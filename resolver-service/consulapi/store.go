package consulapi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/isthmus-mesh/isthmus/atomicfile"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// store keeps what is registered over a restart, each service in a file of its own, as a
// Consul agent does. One without a directory keeps nothing.
type store struct{ dir string }

// storeVersion is the format of the files. Another one is not read.
const storeVersion = 1

// saved is the content of a file.
type saved struct {
	Version   int                `json:"version"`
	Namespace string             `json:"namespace"`
	App       string             `json:"app"`
	Sender    netip.Addr         `json:"sender"`
	Since     int64              `json:"since"`
	Service   *serviceDefinition `json:"service"`
	Checks    []savedCheck       `json:"checks"`
}

// savedCheck is a check and how it stood.
type savedCheck struct {
	ID     string       `json:"id"`
	Fields *checkFields `json:"fields"`
	Shown  *healthCheck `json:"shown"`
}

// path is the file of a service. IDs are free text, so they do not name it.
func (st *store) path(app catalog.App, id string) string {
	sum := sha256.Sum256([]byte(app.String() + "\x00" + id))
	return filepath.Join(st.dir, hex.EncodeToString(sum[:])+".json")
}

// save writes a service's file. It returns once it is on the disk.
func (st *store) save(app catalog.App, s *service) error {
	if st.dir == "" {
		return nil
	}
	content := saved{Version: storeVersion, Namespace: app.Namespace, App: app.ID, Sender: s.sender, Since: s.since.at, Service: s.def}
	for id, c := range s.checks {
		content.Checks = append(content.Checks, savedCheck{id, c.fields, c.shown})
	}
	if err := os.MkdirAll(st.dir, 0o700); err != nil {
		return err
	}
	s.file = st.path(app, s.def.ID)
	_, err := os.Stat(s.file)
	before := err == nil
	if err := atomicfile.Write(s.file, func(w io.Writer) error { return json.NewEncoder(w).Encode(&content) }); err != nil || before {
		return err
	}
	return atomicfile.SyncDirectory(st.dir)
}

func (st *store) remove(s *service) error {
	if st.dir == "" || s.file == "" {
		return nil
	}
	if err := os.Remove(s.file); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return atomicfile.SyncDirectory(st.dir)
}

// load reads what a former life has left. A file that can't be used is left out with a
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
		s, err := readSaved(path)
		if err != nil {
			log.Warn("a service that was registered can't be read; the rest stand", "file", path, "err", err)
			continue
		}
		all = append(all, s)
	}
	return all
}

func readSaved(path string) (*saved, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseSaved(text)
}

// parseSaved reads the text of a file, and holds it to what a registration is held to.
func parseSaved(text []byte) (*saved, error) {
	var s saved
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if s.Version != storeVersion {
		return nil, fmt.Errorf("version %d; this program reads %d", s.Version, storeVersion)
	}
	if err := (catalog.App{Namespace: s.Namespace, ID: s.App}).Check(); err != nil {
		return nil, err
	}
	if s.Service == nil || s.Service.ID == "" || s.Service.Name != s.App {
		return nil, errors.New("it names no service of its app")
	}
	for _, c := range s.Checks {
		if c.Fields == nil || c.Shown == nil || !validStatus(c.Shown.Status) {
			return nil, errors.New("it has a check without a status")
		}
	}
	return &s, errors.Join(s.Service.bounded(), s.Service.validate())
}

// restore takes in what a former life has left, without its checks being run yet.
func (r *registry) restore(all []*saved) (services int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, saved := range all {
		r.clock.Heard(saved.Since)
		o := r.own(catalog.App{Namespace: saved.Namespace, ID: saved.App})
		address, err := r.instanceAddress(saved.Service, saved.Sender)
		if err != nil || len(o.services) >= mostServices {
			r.log.Warn("a service that was registered can't be taken over", "app", o.app.String(), "service", saved.Service.ID, "err", err)
			continue
		}
		unverified := address.IsValid() && !r.same(address.Addr(), saved.Sender)
		if unverified && !r.delegates.Allow(o.app, saved.Sender, address.Addr()) {
			r.log.Warn("a service that was registered is not taken over: its address is not its sender's, and no entry of instances.delegates allows it",
				"app", o.app.String(), "service", saved.Service.ID, "address", address.String(), "from", saved.Sender.String())
			continue
		}
		s := &service{def: saved.Service, sender: saved.Sender, address: address, checks: map[string]*check{}, size: sizeOf(saved.Service), since: since{saved.Since, true}, unverified: unverified}
		s.file = r.store.path(o.app, s.def.ID)
		s.node = r.nodeService(s.def, s.sender, nil)
		for _, c := range saved.Checks {
			if o.checks[c.ID] != nil {
				continue
			}
			restored := r.newCheck(s, c.ID, c.Shown.Name, c.Fields)
			restored.shown.Status, restored.shown.Output, restored.shown.Type = c.Shown.Status, c.Shown.Output, c.Shown.Type
			restored.shown.Interval, restored.shown.Timeout = c.Shown.Interval, c.Shown.Timeout
			if r.discreet(c.Fields, s.sender) {
				restored.shown.Output = "" // of who asked once, and told more
			}
			restored.succeeded = c.Shown.Status == passing
			if !s.def.has(c.ID, c.Fields) {
				restored.size = sizeOf(c.Fields)
			}
			s.checks[c.ID], o.checks[c.ID] = restored, restored
		}
		o.services[s.def.ID] = s
		r.publish(o)
		services++
	}
	return services
}
