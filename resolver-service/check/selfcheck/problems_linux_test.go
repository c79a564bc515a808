package selfcheck

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
	"github.com/isthmus-mesh/isthmus/configstore/file"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// TestAFullDiskIsNamedUntilThereIsRoom holds it for each thing that writes to a disk.
func TestAFullDiskIsNamedUntilThereIsRoom(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root mounts a small file system")
	}
	large := func(name string) configstore.Write {
		o := &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: name}}
		for i := range 500 {
			o.Endpoints = append(o.Endpoints, catalog.Endpoint{App: catalog.App{Namespace: "shop", ID: fmt.Sprint("callee-", i)}})
		}
		return configstore.Write{Object: o}
	}
	stored := func(t *testing.T, s configstore.ReadWriter, err error) func(n string) error {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return func(n string) error {
			_, err := s.Write(t.Context(), large(n))
			return err
		}
	}
	for _, c := range []struct {
		name string
		open func(t *testing.T, dir string) (write func(n string) error)
	}{
		{"an embedded store", func(t *testing.T, dir string) func(string) error {
			s, err := embedded.Open(filepath.Join(dir, "isthmus.db"))
			return stored(t, s, err)
		}},
		{"a store of files", func(t *testing.T, dir string) func(string) error {
			s, err := file.Open(dir, slog.New(slog.DiscardHandler))
			return stored(t, s, err)
		}},
		{"a kept view, instances or certificate", func(_ *testing.T, dir string) func(string) error {
			return func(n string) error {
				return atomicfile.Write(filepath.Join(dir, "view"), func(w io.Writer) error {
					_, err := io.WriteString(w, strings.Repeat(n, 100_000))
					return err
				})
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
				t.Skip("no file system can be mounted here: ", err)
			}
			t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
			write := c.open(t, dir)
			var log bytes.Buffer
			p := &Problems{Dirs: []string{os.TempDir()}, Log: slog.New(slog.NewTextHandler(&log, nil))}
			if err := write("a"); err != nil {
				t.Fatal(err)
			}
			if p.look(t.Context()); len(p.All()) > 0 {
				t.Fatalf("all is well, and there is %v", p.All())
			}
			full := filepath.Join(dir, "full")
			fill(t, full)
			for _, n := range []string{"b", "c", "d", "e", "f", "g"} { // the first may find a free page
				if err := write(n); err != nil {
					break
				}
			}
			p.look(t.Context())
			p.look(t.Context())
			all := p.All()
			if len(all) != 1 || all[0].GetCheck() != check.Disk || all[0].GetName() != dir || !strings.Contains(all[0].GetWhat(), "a write failed (") || !strings.Contains(all[0].GetWhat(), "no space left on device), and 0 kB are free; make room") {
				t.Errorf("of the full disk there is %v", all)
			}
			if strings.Count(log.String(), "something is wrong") != 1 {
				t.Errorf("the log has %s", log.String())
			}
			if err := os.Remove(full); err != nil {
				t.Fatal(err)
			}
			if p.look(t.Context()); len(p.All()) > 0 || !strings.Contains(log.String(), "is right again") {
				t.Errorf("there is room again, and %v; the log has %s", p.All(), log.String())
			}
		})
	}
}

// fill takes all the room that there is.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 4096); ; {
		if _, err := f.Write(block); err != nil {
			return
		}
	}
}

// A store that does not answer has still what it lacked before.
func TestWhatAStoreLacksIsSaid(t *testing.T) {
	s := &lackingStore{all: []string{"it notifies nobody; set it"}}
	p := &Problems{Name: "dapr", Store: s, Log: slog.New(slog.DiscardHandler)}
	for _, c := range []struct {
		lacks []string
		err   error
		want  int
	}{{nil, nil, 0}, {[]string{"it notifies nobody; set it"}, nil, 1}, {nil, context.DeadlineExceeded, 1}, {nil, nil, 0}} {
		s.all, s.err = c.lacks, c.err
		if p.look(t.Context()); len(p.All()) != c.want {
			t.Errorf("%v: %v", c, p.All())
		}
	}
}

type lackingStore struct {
	all []string
	err error
}

func (s *lackingStore) Lacks(context.Context) ([]string, error) { return s.all, s.err }
