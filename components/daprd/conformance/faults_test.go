package conformance

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/components-contrib/nameresolution/sqlite"
)

// A fault is something that a resolver does wrong, and the checks that must find it.
type fault struct {
	name  string
	finds []string
	new   func(works nr.Resolver) nr.Resolver // from one that works
}

var faults = []fault{
	{"takes any configuration", []string{"Init/Invalid", "Init/Strict", "Init/Instance"}, func(r nr.Resolver) nr.Resolver {
		return &faulty{Resolver: r, init: func(ctx context.Context, md nr.Metadata) error { _ = r.Init(ctx, md); return nil }}
	}},
	{"takes one kind of map, and waits whatever its context says", []string{"Init/Maps", "Init/Ended"}, func(r nr.Resolver) nr.Resolver {
		return &faulty{Resolver: r, init: func(ctx context.Context, md nr.Metadata) error {
			if _, ok := md.Configuration.(map[string]any); !ok {
				return errors.New("no map of texts")
			}
			if ctx.Err() != nil {
				time.Sleep(limit + time.Second)
			}
			return r.Init(ctx, md)
		}}
	}},
	{
		"has one answer for everything", []string{
			"Lookup/Known", "Lookup/Own", "Lookup/Unknown", "Lookup/Refuses", "Lookup/Empty", "Lookup/Namespaces", "Lookup/Ports", "Lookup/IPv6", "Lookup/Multi",
		}, func(r nr.Resolver) nr.Resolver {
			return &faulty{Resolver: r, resolve: func(context.Context, nr.ResolveRequest) (string, error) { return nowhere, nil }}
		},
	},
	{"never looks again", []string{"Lookup/Spread", "Change/Joins", "Change/Leaves", "Change/Last", "Change/Moves", "Change/Crash", "Change/Prompt"}, func(r nr.Resolver) nr.Resolver {
		var known sync.Map
		return &faulty{Resolver: r, resolve: func(ctx context.Context, req nr.ResolveRequest) (string, error) {
			if answer, ok := known.Load(req.ID); ok {
				return answer.(string), nil
			}
			answer, err := r.ResolveID(ctx, req)
			if err == nil {
				known.Store(req.ID, answer)
			}
			return answer, err
		}}
	}},
	{"answers one at a time", []string{"Lookup/Concurrent"}, func(r nr.Resolver) nr.Resolver {
		var busy atomic.Bool
		return &faulty{Resolver: r, resolve: func(ctx context.Context, req nr.ResolveRequest) (string, error) {
			if !busy.CompareAndSwap(false, true) {
				return "", errors.New("busy")
			}
			defer busy.Store(false)
			time.Sleep(time.Millisecond)
			return r.ResolveID(ctx, req)
		}}
	}},
	{"does not look at the context of a lookup", []string{"Context/Ended", "Context/Deadline", "Context/Cancelled"}, func(r nr.Resolver) nr.Resolver {
		return &faulty{Resolver: r, resolve: func(_ context.Context, req nr.ResolveRequest) (string, error) {
			if strings.HasPrefix(req.ID, "nobody") {
				time.Sleep(2 * late)
			}
			return r.ResolveID(context.Background(), req)
		}}
	}},
	{"knows nothing without its server", []string{"Context/Outage"}, func(r nr.Resolver) nr.Resolver {
		return &faulty{Resolver: r, resolve: func(ctx context.Context, req nr.ResolveRequest) (string, error) {
			if away.Load() {
				return "", errors.New("the server is away")
			}
			return r.ResolveID(ctx, req)
		}}
	}},
	{"closes once, and after a good start only", []string{"Close/First", "Close/Failed", "Close/Twice", "Close/Lookup", "Close/Goroutines"}, func(r nr.Resolver) nr.Resolver {
		started, closed := false, false
		return &faulty{
			Resolver: r,
			init: func(ctx context.Context, md nr.Metadata) error {
				err := r.Init(ctx, md)
				if started = err == nil; started {
					go func() { select {} }()
				}
				return err
			},
			resolve: func(ctx context.Context, req nr.ResolveRequest) (string, error) {
				if closed {
					panic("closed")
				}
				return r.ResolveID(ctx, req)
			},
			close: func() error {
				if !started || closed {
					return errors.New("not started, or closed")
				}
				closed = true
				return r.Close()
			},
		}
	}},
}

// nowhere is an address that nothing is at.
const nowhere = "127.9.9.9:1"

// away tells whether the server of a resolver with faults is paused.
var away atomic.Bool

// faulty is a resolver that does some things wrong.
type faulty struct {
	nr.Resolver
	init    func(context.Context, nr.Metadata) error
	resolve func(context.Context, nr.ResolveRequest) (string, error)
	close   func() error
}

func (f *faulty) Init(ctx context.Context, md nr.Metadata) error {
	if f.init != nil {
		return f.init(ctx, md)
	}
	return f.Resolver.Init(ctx, md)
}

func (f *faulty) ResolveID(ctx context.Context, req nr.ResolveRequest) (string, error) {
	if f.resolve != nil {
		return f.resolve(ctx, req)
	}
	return f.Resolver.ResolveID(ctx, req)
}

func (f *faulty) ResolveIDMulti(context.Context, nr.ResolveRequest) (nr.AddressList, error) {
	return nr.AddressList{nowhere}, nil
}

func (f *faulty) Close() error {
	if f.close != nil {
		return f.close()
	}
	return f.Resolver.Close()
}

// faultySuite runs the suite for a resolver with a fault, in a process of its own.
func faultySuite(t *testing.T, f fault) {
	Run(t, func() nr.Resolver { return f.new(sqlite.NewResolver(quietLogger())) }, Setup{
		Start: func(t *testing.T) any {
			return map[string]any{"connectionString": filepath.Join(t.TempDir(), "names.db")}
		},
		Invalid: map[string]any{"no connection string": map[string]any{}},
		Pause:   func(*testing.T) (resume func()) { away.Store(true); return func() { away.Store(false) } },
		Within:  time.Second,
	}, All()...)
}

// Each check finds the fault that it is for.
func TestEachCheckCanFail(t *testing.T) {
	untested := map[string]bool{}
	for _, c := range checks() {
		untested[c.Group+"/"+c.Name] = true
	}
	for _, f := range faults {
		for _, name := range f.finds {
			delete(untested, name)
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			cells, said := suite(t, f.name)
			for _, name := range f.finds {
				if cells[name] != results["FAIL"] {
					t.Errorf("%s is %q, want a failure", name, cells[name])
				}
			}
			if t.Failed() {
				t.Log(said)
			}
		})
	}
	if len(untested) > 0 {
		t.Errorf("no fault is for %q", slices.Sorted(maps.Keys(untested)))
	}
}
