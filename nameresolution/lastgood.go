package nameresolution

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"

	pb "github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// lastGoodFormat is the first word of the file, with the version of the format. The
// checksum of all that follows stands beside it.
const lastGoodFormat = "isthmus-view/1"

// maxLastGood bounds what is read of a file that was named by mistake.
const maxLastGood = maxViewBytes

// How often the file is written at most: soon after a change, and the longer a write
// takes, the less often.
const (
	saveDelay     = 100 * time.Millisecond
	saveRestraint = 10
	// saveAgain is when a write that failed is tried again, if nothing changes before.
	saveAgain = 10 * time.Second
	// sweepAfter is how old a file that is not finished must be to be removed: another
	// sidecar could be writing it.
	sweepAfter = time.Minute
)

// lastGood is the file that keeps the view over a restart of daprd while the service
// is away. An empty path keeps nothing.
type lastGood struct {
	path    string
	app     catalog.App
	cluster string
	log     *slog.Logger
}

// origin is the second line of the file: whose view it is, and from when.
type origin struct {
	App     string    `json:"app"`
	Cluster string    `json:"cluster"`
	Saved   time.Time `json:"saved"`
}

// load returns the view of before, and how old it is; nil if there is none that can
// be used. It never fails: without the file the view comes from the service.
func (f *lastGood) load() (*mirror, time.Duration) {
	if f.path == "" {
		return nil, 0
	}
	if err := atomicfile.Sweep(f.path, sweepAfter); err != nil {
		f.log.Warn("files that a killed sidecar has left beside the last good view can't be removed", "err", err)
	}
	m, saved, err := f.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0
	}
	if err != nil {
		f.log.Warn("the last good view can't be used; lookups wait for the service", "err", fmt.Errorf("lastGood %s: %w", f.path, err))
		return nil, 0
	}
	age := max(time.Since(saved), 0) // by the wall clock, which may have been set back
	f.log.Info("answering from the last good view until the service is heard", "app", f.app.String(),
		"revision", m.revision(), "age", age.Round(time.Second).String())
	return m, age
}

func (f *lastGood) read() (*mirror, time.Time, error) {
	text, err := atomicfile.Read(f.path, maxLastGood)
	if err != nil {
		return nil, time.Time{}, err
	}
	return f.parse(text)
}

// parse reads the content of the file, and refuses that of another app or cluster.
func (f *lastGood) parse(text []byte) (*mirror, time.Time, error) {
	head, body, ok := bytes.Cut(text, []byte("\n"))
	if !ok || !bytes.HasPrefix(head, []byte(lastGoodFormat+" ")) {
		return nil, time.Time{}, fmt.Errorf("does not begin with %q; it is another file, or another version wrote it", lastGoodFormat)
	}
	if want := seal(body); !bytes.Equal(head, want) {
		return nil, time.Time{}, errors.New("is damaged: its checksum is not that of its content")
	}
	line, message, _ := bytes.Cut(body, []byte("\n"))
	var o origin
	if err := json.Unmarshal(line, &o); err != nil {
		return nil, time.Time{}, fmt.Errorf("second line: %w", err)
	}
	if o.App != f.app.String() || o.Cluster != f.cluster {
		return nil, time.Time{}, fmt.Errorf("is the view of %s in cluster %s; this is %s in %s", o.App, o.Cluster, f.app, f.cluster)
	}
	var all pb.WatchResponse
	if err := proto.Unmarshal(message, &all); err != nil {
		return nil, time.Time{}, err
	}
	m, err := (*mirror)(nil).with(&all)
	if err == nil && all.Access != nil {
		m.access, err = (*access)(nil).with(all.Access)
	}
	return m, o.Saved, err
}

func seal(body []byte) []byte {
	return fmt.Appendf(nil, "%s %016x", lastGoodFormat, xxhash.Sum64(body))
}

// format is the content of the file.
func (f *lastGood) format(m *mirror, now time.Time) ([]byte, error) {
	line, err := json.Marshal(origin{f.app.String(), f.cluster, now.UTC()})
	if err != nil {
		return nil, err
	}
	body, err := proto.MarshalOptions{}.MarshalAppend(append(line, '\n'), m.message())
	if err != nil {
		return nil, err
	}
	return append(append(seal(body), '\n'), body...), nil
}

// follow writes the file soon after each change, until ctx ends, and then what stands
// at last.
func (f *lastGood) follow(ctx context.Context, current *live.Value[*mirror]) {
	failing := false
	current.Save(ctx, live.Saving{Delay: saveDelay, Factor: saveRestraint, Retry: saveAgain}, func(m *mirror) error {
		err := f.write(m)
		if err != nil {
			f.complain(err, failing)
		}
		failing = err != nil
		return err
	})
}

// complain reports that the file can't be written, unless it was so before.
func (f *lastGood) complain(err error, before bool) {
	if !before {
		f.log.Warn("the view can't be saved; a restart while the service is away would find an older one, or none; trying again",
			"err", fmt.Errorf("lastGood %s: %w", f.path, err))
	}
}

// write replaces the file as a whole, readable by its owner only.
func (f *lastGood) write(m *mirror) error {
	content, err := f.format(m, time.Now())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(f.path, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}
