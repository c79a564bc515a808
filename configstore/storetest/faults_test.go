package storetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/file"
)

// faultVariable names the fault that a child process runs the suite with.
const faultVariable = "ISTHMUS_TEST_FAULT"

// fault is something that a store does wrong, and the specification that must catch it.
type fault struct {
	what   string
	caught string
	make   func(b *Backend)
}

// bent is a store with something wrong.
type bent struct {
	configstore.ReadWriter
	watch   func(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error
	write   func(ctx context.Context, writes []configstore.Write) ([]string, error)
	history func() []configstore.Past
}

func (s bent) Watch(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
	if s.watch == nil {
		return s.ReadWriter.Watch(ctx, from, deliver)
	}
	return s.watch(ctx, from, deliver)
}

func (s bent) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	if s.write == nil {
		return s.ReadWriter.Write(ctx, writes...)
	}
	return s.write(ctx, writes)
}

func (s bent) History(context.Context, catalog.Key, int) ([]configstore.Past, error) {
	return s.history(), nil
}

// bend makes every store that the backend opens a bent one.
func bend(b *Backend, how func(s *bent)) {
	straight := b.Open
	b.Open = func(t testing.TB) configstore.ReadWriter {
		s := bent{ReadWriter: straight(t)}
		how(&s)
		return s
	}
}

// delivering bends what is delivered.
func delivering(how func(c configstore.Change) []configstore.Change) func(*Backend) {
	return func(b *Backend) {
		bend(b, func(s *bent) {
			s.watch = func(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
				return s.ReadWriter.Watch(ctx, from, func(c configstore.Change) error {
					for _, c := range how(c) {
						if err := deliver(c); err != nil {
							return err
						}
					}
					return nil
				})
			}
		})
	}
}

// bendWrites bends what is written.
func bendWrites(how func(w []configstore.Write) []configstore.Write, bendErr func(error) error) func(*Backend) {
	return func(b *Backend) {
		bend(b, func(s *bent) {
			s.write = func(ctx context.Context, writes []configstore.Write) ([]string, error) {
				revisions, err := s.ReadWriter.Write(ctx, how(slices.Clone(writes))...)
				return revisions, bendErr(err)
			}
		})
	}
}

func unbent[T any](v T) T { return v }

var errAway = errors.New("connection refused")

// shut is a store that does not let anybody in, or should not.
func shut(watch func(deliver func(configstore.Change) error) error, err error) func(testing.TB) configstore.ReadWriter {
	return func(testing.TB) configstore.ReadWriter { return shutStore{watch, err} }
}

type shutStore struct {
	watch func(deliver func(configstore.Change) error) error
	err   error
}

func (s shutStore) Watch(_ context.Context, _ configstore.Version, deliver func(configstore.Change) error) error {
	return s.watch(deliver)
}
func (s shutStore) Close() error { return nil }
func (s shutStore) Get(context.Context, catalog.Key) (configstore.Stored, error) {
	return configstore.Stored{}, s.err
}
func (s shutStore) List(context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	return nil, nil, s.err
}
func (s shutStore) Write(context.Context, ...configstore.Write) ([]string, error) { return nil, s.err }

func faults() []fault {
	none := func(configstore.Change) []configstore.Change { return nil }
	one := func(bend func(c *configstore.Change)) func(*Backend) {
		return delivering(func(c configstore.Change) []configstore.Change { bend(&c); return []configstore.Change{c} })
	}
	return slices.Concat(bentFaults(one), accessFaults(one), []fault{
		{"says nothing", "an empty store has an empty full set", delivering(none)},
		{"delivers a change twice", "a change of one object comes once", delivering(func(c configstore.Change) []configstore.Change { return []configstore.Change{c, c} })},
		{"tears a batch", "what was written together arrives together", delivering(func(c configstore.Change) (torn []configstore.Change) {
			for _, o := range c.Objects {
				torn = append(torn, configstore.Change{Objects: []configstore.Stored{o}, Version: c.Version})
			}
			return append([]configstore.Change{{Full: c.Full, Deleted: c.Deleted, Version: c.Version}}, torn...)
		})},
		{"takes failing for empty", "failing is not empty", func(b *Backend) {
			var away atomic.Bool
			bend(b, func(s *bent) {
				s.watch = func(ctx context.Context, from configstore.Version, deliver func(configstore.Change) error) error {
					err := s.ReadWriter.Watch(ctx, from, func(c configstore.Change) error { return deliver(c) })
					if away.Load() {
						_ = deliver(configstore.Change{Full: true, Version: "1"})
					}
					return err
				}
			})
			straight := b.Fail
			b.Fail = func(t testing.TB, s configstore.ReadWriter) func() {
				away.Store(true)
				return straight(t, s)
			}
		}},
		{"never finds out that its link is cut", "a Watch finds out by itself that its link is cut, and what was missed comes once", func(b *Backend) {
			b.Cut = func(testing.TB) func() { return func() {} }
		}},
		{"forgets what it acknowledged", "a server's kill -9 loses nothing, doubles nothing and empties nothing", func(b *Backend) {
			put := b.PutRaw
			b.Restart = func(t testing.TB, _ bool) { put(t, nil, "isthmus/v1alpha1/Cluster/c9", nil) }
		}},
		{"does not come back from a backup", "a server put back to a backup: its readers come to have what it has", func(b *Backend) {
			b.Rewind = func(testing.TB) func() { return func() {} }
		}},
		{"tells history the wrong way round", "the history of an object, newest first, deletions too", func(b *Backend) {
			bend(b, func(s *bent) {
				s.history = func() []configstore.Past {
					return []configstore.Past{{Object: Cluster("east", "a")}, {Deleted: true}, {Object: Cluster("east", "c")}}
				}
			})
		}},
	})
}

// accessFaults are in what happens to whom the server does not let in.
func accessFaults(one func(func(*configstore.Change)) func(*Backend)) []fault {
	failing := func(err error) func(func(configstore.Change) error) error {
		return func(func(configstore.Change) error) error { return err }
	}
	const denied = "wrong credentials are an error that says so, and never an empty set"
	return []fault{
		{"lets anybody in", denied, func(b *Backend) { b.Denied = b.Open }},
		{"takes a refusal for an empty set", denied, func(b *Backend) {
			b.Denied = shut(func(deliver func(configstore.Change) error) error {
				return errors.Join(deliver(configstore.Change{Full: true}), errors.New("403 permission denied"))
			}, errors.New("403 permission denied"))
		}},
		{"does not say why it is shut out", denied, func(b *Backend) { b.Denied = shut(failing(errAway), errAway) }},
		{"takes a refusal for no such object", denied, func(b *Backend) {
			err := fmt.Errorf("403 permission denied: %w", configstore.ErrNotFound)
			b.Denied = shut(failing(err), err)
		}},
		{"shows its secret", denied, func(b *Backend) {
			err := errors.New("permission denied for me:hunter2")
			b.Denied, b.Secrets = shut(failing(err), err), []string{"hunter2"}
		}},
		{"does not name its server", denied, func(b *Backend) {
			err := errors.New("permission denied")
			b.Denied, b.Servers = shut(failing(err), err), []string{"127.0.0.1:8500"}
		}},
		{"believes any certificate", "a server whose certificate another authority signed is not believed", func(b *Backend) { b.WrongCA = b.Open }},
		{"leaves out what it may not read", "no permission on one key takes nothing away, and says which", func(b *Backend) {
			straight := b.Open
			b.Blind = func(t testing.TB, _ string) configstore.ReadWriter {
				only := *b
				only.Open = straight
				one(func(c *configstore.Change) {
					c.Objects = slices.DeleteFunc(c.Objects, func(o configstore.Stored) bool { return o.Object.Key() == eastKey })
				})(&only)
				return only.Open(t)
			}
		}},
		{"writes though it may not", "no permission to write is an error that says so, and reading goes on", func(b *Backend) { b.Unwritable = b.Open }},
		{"tells an app of others", "of a store opened for one app, what others have is never delivered nor refused", func(b *Backend) {
			b.Scoped = func(t testing.TB, _ configstore.Scope) configstore.ReadWriter { return b.Open(t) }
		}},
	}
}

// bentFaults are in what is delivered and what is written.
func bentFaults(one func(func(*configstore.Change)) func(*Backend)) []fault {
	later := func(bend func(c *configstore.Change)) func(*Backend) {
		return one(func(c *configstore.Change) {
			if !c.Full {
				bend(c)
			}
		})
	}
	return []fault{
		{"does not say that a set is full", "the full set comes first", one(func(c *configstore.Change) { c.Full = false })},
		{"has no versions", "an empty store has an empty full set", one(func(c *configstore.Change) { c.Version = "" })},
		{"loses changes", "changes come in order and end at the newest", later(func(c *configstore.Change) { c.Objects = nil })},
		{"loses deletions", "delete is delete, and what is written again is there again", later(func(c *configstore.Change) { c.Deleted = nil })},
		{"loses what was missed", "a reader that comes back learns what it missed, deletions too", one(func(c *configstore.Change) {
			if c.Full && len(c.Objects) > 0 && c.Objects[0].Object.(*catalog.Cluster).Network == "c" {
				c.Objects = c.Objects[:1]
			}
		})},
		{"keeps silent about bad objects", "a bad object is refused by name, and the rest stand", one(func(c *configstore.Change) { c.Refused = nil })},
		{"takes a bad object for a deleted one", "the last good object stands in for a bad one", one(func(c *configstore.Change) {
			for _, r := range c.Refused {
				c.Deleted = append(c.Deleted, r.Key)
			}
		})},
		{"gives more than has changed", "a change follows, and holds what has changed", later(func(c *configstore.Change) { c.Objects = append(c.Objects, c.Objects...) })},
		{"overwrites what others changed", "of writers for one revision exactly one wins", bendWrites(withoutIf, unbent)},
		{"overwrites what others counted", "of writers at once, nobody's change is lost without an error", bendWrites(withoutIf, unbent)},
		{"writes the first of a batch", "a batch is written whole or not at all", bendWrites(func(w []configstore.Write) []configstore.Write { return w[:1] }, unbent)},
		{"does not say that an object is too large", "an object beyond the limit is an honest error, and nothing is written",
			bendWrites(unbent, func(err error) error {
				if errors.Is(err, configstore.ErrTooLarge) {
					return errAway
				}
				return err
			})},
		{"does not say how large an object may be", "an object beyond the limit is an honest error, and nothing is written",
			bendWrites(unbent, func(err error) error {
				if errors.Is(err, configstore.ErrTooLarge) {
					return configstore.ErrTooLarge
				}
				return err
			})},
	}
}

func withoutIf(writes []configstore.Write) []configstore.Write {
	for i := range writes {
		writes[i].If = ""
	}
	return writes
}

// straightBackend is the file store, which passes.
func straightBackend(t *testing.T) Backend {
	dir := t.TempDir()
	open := func(t testing.TB) configstore.ReadWriter {
		s, err := file.Open(dir, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	return Backend{
		Open: open, Shared: true, MaxObject: api.MaxObjectBytes,
		PutRaw: func(t testing.TB, _ configstore.ReadWriter, path string, value []byte) {
			name := filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(path, api.KeyPrefix), "/", ".")+".yaml")
			if value == nil {
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
				return
			}
			// At once: between a removal and a write, the object would be seen as deleted.
			written := filepath.Join(t.TempDir(), "written")
			if err := os.WriteFile(written, value, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(written, name); err != nil {
				t.Fatal(err)
			}
		},
		Fail: func(t testing.TB, _ configstore.ReadWriter) func() {
			if err := os.Rename(dir, dir+".away"); err != nil {
				t.Fatal(err)
			}
			return func() { _ = os.Rename(dir+".away", dir) }
		},
	}
}

// TestFaulty is run by a child process of the next test, and is to fail there.
func TestFaulty(t *testing.T) {
	what := os.Getenv(faultVariable)
	if what == "" {
		t.Skip("runs with a fault only")
	}
	all := faults()
	i := slices.IndexFunc(all, func(f fault) bool { return f.what == what })
	if i >= 0 {
		patience = 2 * time.Second
	}
	Run(t, func(t *testing.T) Backend {
		b := straightBackend(t)
		if i >= 0 {
			all[i].make(&b)
		}
		return b
	})
}

// A suite is worth what it catches, if it lets a good store pass.
func TestTheSuiteCatchesAStoreThat(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(t *testing.T, what, specification string) string {
		cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run", "^TestFaulty$/^"+specification+"$")
		cmd.Env = append(os.Environ(), faultVariable+"="+what)
		out, _ := cmd.CombinedOutput() // how it ended is in there
		return string(out)
	}
	var names []string
	for _, f := range faults() {
		name := strings.ReplaceAll(f.caught, " ", "_")
		names = append(names, name)
		t.Run(f.what, func(t *testing.T) {
			t.Parallel()
			if out := run(t, f.what, name); !strings.Contains(out, "--- FAIL: TestFaulty/"+name) {
				t.Errorf("%q did not fail:\n%s", f.caught, out)
			}
		})
	}
	t.Run("does nothing wrong", func(t *testing.T) {
		if out := run(t, "none", "("+strings.Join(names, "|")+")"); strings.Contains(out, "--- FAIL") || !strings.Contains(out, "--- PASS: TestFaulty/") {
			t.Errorf("a good store does not pass:\n%s", out)
		}
	})
}
