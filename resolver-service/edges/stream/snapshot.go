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
	"runtime"
	"strconv"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/topology/destination"
)

// snapshotVersion is the format of the file. A file of another format is ignored.
const snapshotVersion = 1

// debounce is how long changes are gathered before a write.
const debounce = 100 * time.Millisecond

// After a write, the file is left alone for writePauseFactor times as long as the write took, so
// that a large file does not keep a core busy. maxWritePause bounds that, for a disk that was
// slow once.
const (
	writePauseFactor = 200
	maxWritePause    = 10 * time.Second
)

// maxSnapshot bounds what is read of a file that is there by mistake.
const maxSnapshot = 512 << 20

// retryPause is the pause after a failed write, if nothing changes.
const retryPause = 5 * time.Second

// snapshotFile keeps the registered instances over a restart. With an empty path it keeps
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
	AppVersion string `json:"version,omitempty"`
	Since      int64  `json:"since,omitempty"`
	Calls      string `json:"calls,omitempty"`
}

// load reads the file. An unusable file is ignored with a warning: its instances register again
// by themselves.
func (f *snapshotFile) load() (former []catalog.Instance, revision uint64) {
	if f.path == "" {
		return nil, 0
	}
	if err := atomicfile.Sweep(f.path, 0); err != nil {
		f.log.Warn("unfinished snapshot files can't be removed; remove them by hand", "err", err)
	}
	former, revision, refused, err := f.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0
	}
	if err != nil {
		f.log.Warn("snapshot of instances unusable; the instances return as their sidecars reconnect", "err", err)
		return nil, 0
	}
	for _, err := range refused {
		f.log.Warn("instance in the snapshot unusable; it returns when its sidecar reconnects, and the others are restored", "err", err)
	}
	f.log.Info("restored instances from the snapshot", "instances", len(former), "revision", revision)
	return former, revision
}

func (f *snapshotFile) read() (former []catalog.Instance, revision uint64, refused []error, err error) {
	text, err := atomicfile.Read(f.path, maxSnapshot)
	if err == nil {
		former, revision, refused, err = parseSnapshot(text, f.rules)
	}
	if err != nil {
		return nil, 0, nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return former, revision, refused, nil
}

// parseSnapshot decodes the file. An unusable instance is refused by its name, or by its place if
// it has none.
func parseSnapshot(text []byte, rules *destination.Rules) (former []catalog.Instance, revision uint64, refused []error, err error) {
	var s snapshot
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, 0, nil, err
	}
	if s.Version != snapshotVersion {
		return nil, 0, nil, fmt.Errorf("version %d; this program reads %d", s.Version, snapshotVersion)
	}
	former = make([]catalog.Instance, 0, len(s.Instances))
	apps := map[catalog.App]catalog.App{} // instances of one app share its name
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
		if one, ok := apps[instance.App]; ok {
			instance.App = one
		} else {
			apps[instance.App] = instance.App
		}
		former = append(former, instance)
	}
	return former, min(s.Revision, maxPlausible(time.Now())), refused, nil
}

func (i savedInstance) instance() catalog.Instance {
	return catalog.Instance{ID: i.ID, App: catalog.App{Namespace: i.Namespace, ID: i.App}, Address: i.Address, Draining: i.Draining, Unverified: i.Unverified, Zone: i.Zone, Version: i.AppVersion, Since: i.Since, Calls: catalog.Calls(i.Calls)}
}

// follow writes the file soon after each change until ctx ends, and then the final state. It logs
// and retries failed writes.
func (f *snapshotFile) follow(ctx context.Context, standing *live.Value[instanceTable], revision func() uint64) error {
	if f.path == "" {
		return nil
	}
	standing.Save(ctx, live.Saving{Delay: debounce, Factor: writePauseFactor, Most: maxWritePause, Retry: retryPause}, func(now instanceTable) error {
		err := f.write(now, revision())
		if err != nil {
			f.log.Error("instances can't be saved; after a restart of the service they would be missing until their sidecars reconnect", "err", err)
		}
		return err
	})
	return nil
}

// write replaces the whole file: a reader sees the old one or the new one.
func (f *snapshotFile) write(r instanceTable, revision uint64) error {
	if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(f.path, func(w io.Writer) error { return encode(w, r, revision) })
}

// yieldEvery is after how many instances encode lets waiting goroutines go first: a sidecar's view
// is more urgent than the file.
const yieldEvery = 256

// encode writes one instance after the other, so that the whole file is never in memory.
func encode(to io.Writer, r instanceTable, revision uint64) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, `{"version":%d,"revision":%d,"instances":[`, snapshotVersion, revision)
	n := 0
	for _, list := range r.All() {
		for _, record := range list {
			b := w.AvailableBuffer()
			if n++; n > 1 {
				b = append(b, ',')
			}
			_, _ = w.Write(appendSaved(b, &record.instance)) // w keeps its first error for Flush
			if n%yieldEvery == 0 {
				runtime.Gosched()
			}
		}
	}
	_, _ = w.WriteString("]}\n")
	return w.Flush()
}

// appendSaved appends the JSON of a savedInstance. The file is written again and again, and package
// json takes longer.
func appendSaved(b []byte, i *catalog.Instance) []byte {
	b = appendJSON(append(b, `{"namespace":`...), i.App.Namespace)
	b = appendJSON(append(b, `,"app":`...), i.App.ID)
	b = appendJSON(append(b, `,"id":`...), i.ID)
	var room [64]byte
	address, _ := i.Address.AppendText(room[:0]) // never fails
	b = appendJSON(append(b, `,"address":`...), address)
	if i.Draining {
		b = append(b, `,"draining":true`...)
	}
	if i.Unverified {
		b = append(b, `,"unverified":true`...)
	}
	if i.Zone != "" {
		b = appendJSON(append(b, `,"zone":`...), i.Zone)
	}
	if i.Version != "" {
		b = appendJSON(append(b, `,"version":`...), i.Version)
	}
	if i.Since != 0 {
		b = strconv.AppendInt(append(b, `,"since":`...), i.Since, 10)
	}
	if i.Calls != "" {
		b = appendJSON(append(b, `,"calls":`...), string(i.Calls))
	}
	return append(b, "}\n"...)
}

// appendJSON appends a text as JSON has it.
func appendJSON[T string | []byte](b []byte, text T) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(string(text)) // never fails for a text
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}
