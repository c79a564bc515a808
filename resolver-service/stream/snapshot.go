package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/isthmus-mesh/isthmus/atomicfile"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/destination"
)

// snapshotVersion is the format of the file. Another one is not read.
const snapshotVersion = 1

// debounce is how long changes are gathered before they are written.
const debounce = 100 * time.Millisecond

// restraint is how many times as long as a write took the file is left alone, so that
// a large one does not keep a core busy; but no longer than mostRestraint, for a disk that
// was slow once.
const (
	restraint     = 50
	mostRestraint = 10 * time.Second
)

// retry is how long after a write that failed another is tried, if nothing changes.
const retry = 5 * time.Second

// snapshotFile keeps the registered instances over a restart. An empty path keeps
// nothing.
type snapshotFile struct {
	path  string
	rules *destination.Rules
	log   *slog.Logger
}

// snapshot is the content of the file.
type snapshot struct {
	Version   int               `json:"version"`
	Revision  uint64            `json:"revision"`
	Instances []json.RawMessage `json:"instances"` // each a savedInstance
}

type savedInstance struct {
	Namespace string         `json:"namespace"`
	App       string         `json:"app"`
	ID        string         `json:"id"`
	Address   netip.AddrPort `json:"address"`
	Draining  bool           `json:"draining,omitempty"`
	// Unverified is catalog.Instance.Unverified.
	Unverified bool   `json:"unverified,omitempty"`
	Zone       string `json:"zone,omitempty"`
}

// load reads what a former life has left. A file that can't be read is left out with
// a warning: its instances register again by themselves.
func (f *snapshotFile) load() (former []catalog.Instance, revision uint64) {
	if f.path == "" {
		return nil, 0
	}
	if err := atomicfile.Sweep(f.path, 0); err != nil {
		f.log.Warn("snapshots that were not finished can't be removed", "err", err)
	}
	former, revision, refused, err := f.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0
	}
	if err != nil {
		f.log.Warn("the snapshot of instances can't be used; they stand again as their sidecars come back", "err", err)
		return nil, 0
	}
	for _, err := range refused {
		f.log.Warn("an instance in the snapshot can't be used; it stands again when its sidecar is back, and the rest stand", "err", err)
	}
	f.log.Info("took over the instances of before the restart", "instances", len(former), "revision", revision)
	return former, revision
}

func (f *snapshotFile) read() (former []catalog.Instance, revision uint64, refused []error, err error) {
	text, err := os.ReadFile(f.path)
	if err == nil {
		former, revision, refused, err = parseSnapshot(text, f.rules)
	}
	if err != nil {
		return nil, 0, nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return former, revision, refused, nil
}

// parseSnapshot reads the file's text. An instance that can't be used is refused by its
// name, or by its place where it has none.
func parseSnapshot(text []byte, rules *destination.Rules) (former []catalog.Instance, revision uint64, refused []error, err error) {
	var s snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, 0, nil, err
	}
	if s.Version != snapshotVersion {
		return nil, 0, nil, fmt.Errorf("version %d; this program reads %d", s.Version, snapshotVersion)
	}
	former = make([]catalog.Instance, 0, len(s.Instances))
	for n, text := range s.Instances {
		var i savedInstance
		err := json.Unmarshal(text, &i)
		instance := i.instance()
		if err == nil {
			err = checkInstance(&instance, rules)
		}
		if err != nil {
			refused = append(refused, fmt.Errorf("number %d, %q of %s/%s: %w", n+1, i.ID, i.Namespace, i.App, err))
			continue
		}
		former = append(former, instance)
	}
	return former, min(s.Revision, plausible(time.Now())), refused, nil
}

func (i savedInstance) instance() catalog.Instance {
	return catalog.Instance{ID: i.ID, App: catalog.App{Namespace: i.Namespace, ID: i.App}, Address: i.Address, Draining: i.Draining, Unverified: i.Unverified, Zone: i.Zone}
}

// follow writes the file soon after each change until ctx ends, and then what stands
// at last. A failure is logged, and the write tried again.
func (f *snapshotFile) follow(ctx context.Context, standing *live.Value[roster], revision func() uint64) error {
	if f.path == "" {
		return nil
	}
	standing.Save(ctx, live.Saving{Delay: debounce, Factor: restraint, Most: mostRestraint, Retry: retry}, func(now roster) error {
		err := f.write(now, revision())
		if err != nil {
			f.log.Error("the instances can't be saved; a restart of the service would withdraw them until their sidecars are back", "err", err)
		}
		return err
	})
	return nil
}

// write replaces the file as a whole: whoever reads it sees the old one or the new.
func (f *snapshotFile) write(r roster, revision uint64) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(f.path, func(w io.Writer) error { return encode(w, r, revision) })
}

// encode writes one instance after the other, so that the whole is never in memory.
func encode(to io.Writer, r roster, revision uint64) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, `{"version":%d,"revision":%d,"instances":[`, snapshotVersion, revision)
	each, between := json.NewEncoder(w), ""
	for _, list := range r.All() {
		for _, i := range list {
			_, _ = w.WriteString(between) // w keeps its first error for Flush
			if err := each.Encode(savedInstance{i.App.Namespace, i.App.ID, i.ID, i.Address, i.Draining, i.Unverified, i.Zone}); err != nil {
				return err
			}
			between = ","
		}
	}
	_, _ = w.WriteString("]}\n")
	return w.Flush()
}
