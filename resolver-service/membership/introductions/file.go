package introductions

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"google.golang.org/protobuf/encoding/protodelim"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// maxFile bounds the file that is read, in bytes.
const maxFile = 4 * maxBytes

// load reads the saved introductions, by introducer. Without a usable file there are none.
func load(path string, log *slog.Logger) map[string]*v1alpha1.IntroductionsResponse {
	if path == "" {
		return nil
	}
	if err := atomicfile.Sweep(path, 0); err != nil {
		log.Warn("unfinished files of introductions can't be removed; remove them by hand", "err", err)
	}
	text, err := atomicfile.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var saved map[string]*v1alpha1.IntroductionsResponse
	if err == nil {
		saved, err = parse(text)
	}
	if err != nil {
		log.Warn("saved introductions unusable; introduced clusters return once their introducers are heard", "path", path, "err", err)
	}
	return saved
}

// parse reads the messages of a file, one for each introducer. Nothing of a file with a fault is used.
func parse(text []byte) (map[string]*v1alpha1.IntroductionsResponse, error) {
	all := map[string]*v1alpha1.IntroductionsResponse{}
	for in := bufio.NewReader(bytes.NewReader(text)); ; {
		m := &v1alpha1.IntroductionsResponse{}
		err := protodelim.UnmarshalOptions{MaxSize: 2 * maxBytes}.UnmarshalFrom(in, m)
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		}
		if err == nil {
			err = catalog.CheckCluster(m.GetCluster())
		}
		if err != nil {
			return nil, fmt.Errorf("introducer %d: %w", len(all)+1, err)
		}
		all[m.GetCluster()] = m
	}
}

// How often the file is written.
var saving = live.Saving{Delay: 100 * time.Millisecond, Factor: 10, Most: 10 * time.Second, Retry: 5 * time.Second}

// Run saves introductions soon after each change until ctx ends, and then once more.
func (h *Heard) Run(ctx context.Context) error {
	if h.cfg.File == "" {
		<-ctx.Done()
		return nil
	}
	h.version.Save(ctx, saving, func(uint64) error {
		err := atomicfile.Write(h.cfg.File, h.save)
		if err != nil {
			h.log.Error("introductions can't be saved; after a restart introduced clusters would be missing until their introducers are heard", "path", h.cfg.File, "err", err)
		}
		return err
	})
	return nil
}

// save writes the introductions of each introducer.
func (h *Heard) save(w io.Writer) error {
	h.mu.Lock()
	all := make([]*v1alpha1.IntroductionsResponse, 0, len(h.order))
	for _, by := range h.order {
		m := &v1alpha1.IntroductionsResponse{Cluster: by}
		for _, in := range h.by[by].heard {
			if in.err == nil { // else it is heard again, with its reason
				m.Put = append(m.Put, in.said)
			}
		}
		all = append(all, m)
	}
	h.mu.Unlock()
	out := bufio.NewWriter(w)
	for _, m := range all {
		if _, err := protodelim.MarshalTo(out, m); err != nil {
			return err
		}
	}
	return out.Flush()
}
