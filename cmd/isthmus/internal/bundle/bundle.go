// Package bundle writes support bundles: files about a service in one archive, without secrets, and
// a list of what could not be had.
package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/settings"
)

// Bundle collects files. Names have slashes for folders.
type Bundle struct {
	now     time.Time
	names   []string
	files   map[string][]byte
	missing []string // "name: why"
}

// New makes an empty bundle of a moment.
func New(now time.Time) *Bundle { return &Bundle{now: now, files: map[string][]byte{}} }

// Add adds a file, or why there is none. What looks like a secret is left out of either.
func (b *Bundle) Add(name string, text []byte, err error) {
	if err != nil {
		b.missing = append(b.missing, settings.Hide(fmt.Sprintf("%s: %v", name, err)))
		return
	}
	if _, more := b.files[name]; !more {
		b.names = append(b.names, name)
	}
	b.files[name] = []byte(settings.Hide(string(text)))
}

// Empty tells whether nothing was added.
func (b *Bundle) Empty() bool { return len(b.names) == 0 }

// Missing lists the parts that the bundle lacks, and why.
func (b *Bundle) Missing() []string { return b.missing }

// index is the first file, for people.
func (b *Bundle) index(about string) []byte {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\nMade %s. Secrets are left out; names and addresses of apps are in it.\n\n", about, b.now.UTC().Format(time.RFC3339))
	for _, name := range b.names {
		fmt.Fprintf(&text, "%s, %d bytes\n", name, len(b.files[name]))
	}
	if len(b.missing) > 0 {
		fmt.Fprintf(&text, "\nWhat could not be read:\n%s\n", strings.Join(b.missing, "\n"))
	}
	return text.Bytes()
}

// Write writes the archive to a file that is not there yet, for this user alone.
func (b *Bundle) Write(path, about string) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the bundle: %w; name another file by -o", err)
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(fmt.Errorf("write the bundle: %w", err), os.Remove(path))
		}
	}()
	return b.archive(file, about)
}

func (b *Bundle) archive(to io.Writer, about string) error {
	packed := gzip.NewWriter(to)
	archive := tar.NewWriter(packed)
	put := func(name string, text []byte) error {
		err := archive.WriteHeader(&tar.Header{Name: "isthmus-support/" + name, Mode: 0o600, Size: int64(len(text)), ModTime: b.now, Typeflag: tar.TypeReg})
		if err == nil {
			_, err = archive.Write(text)
		}
		return err
	}
	if err := put("INDEX.txt", b.index(about)); err != nil {
		return err
	}
	for _, name := range b.names {
		if err := put(name, b.files[name]); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}
