package selfcheck

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// How often problems are looked for, and how long a store may take to answer.
const (
	problemsPause  = 5 * time.Second
	lacksPatience  = 5 * time.Second
	makeRoom       = "make room there, then repeat what operators could not write; the service repeats what it keeps itself"
	mostOfProblems = 20
)

// Problems knows the faults of directories and of the store.
type Problems struct {
	Dirs     []string // that are always written to
	Name     string   // of the store
	Store    any      // may be a configstore.Lacker
	Identity *configstore.ClusterIdentity
	Log      *slog.Logger

	found atomic.Pointer[[]*v1alpha1.Problem]
}

// Run looks again and again until ctx ends. The log, which events are made of, has each fault at
// its begin and end.
func (p *Problems) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		p.look(ctx)
		live.Sleep(ctx, problemsPause)
	}
	return nil
}

// All returns the faults of the last look.
func (p *Problems) All() []*v1alpha1.Problem {
	if found := p.found.Load(); found != nil {
		return *found
	}
	return nil
}

func (p *Problems) look(ctx context.Context) {
	was := p.All()
	now := slices.Concat(p.disks(), p.identity(), p.lacks(ctx, was))
	now = now[:min(len(now), mostOfProblems)]
	for _, n := range now {
		if i := slices.IndexFunc(was, same(n)); i >= 0 {
			n.SinceUnixMs = was[i].GetSinceUnixMs()
		} else {
			n.SinceUnixMs = time.Now().UnixMilli()
			p.Log.Warn("something is wrong, and the service goes on", "check", n.GetCheck(), "of", n.GetName(), "what", n.GetWhat())
		}
	}
	for _, w := range was {
		if !slices.ContainsFunc(now, same(w)) {
			p.Log.Info("what was wrong is right again", "check", w.GetCheck(), "of", w.GetName())
		}
	}
	p.found.Store(&now)
}

// same tells of problems whether they are of the same subject: how much room there is may change.
func same(a *v1alpha1.Problem) func(*v1alpha1.Problem) bool {
	return func(b *v1alpha1.Problem) bool { return a.GetCheck() == b.GetCheck() && a.GetName() == b.GetName() }
}

// disks are the directories without room, whether a write has failed there or only would.
func (p *Problems) disks() (all []*v1alpha1.Problem) {
	failed := map[string]atomicfile.Fault{}
	for _, f := range atomicfile.Faults() {
		failed[filepath.Dir(f.Path)] = f
	}
	dirs := slices.AppendSeq(slices.Clone(p.Dirs), maps.Keys(failed))
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		free, err := atomicfile.Free(dir)
		what := fmt.Sprintf("%d kB are free; %s", free>>10, makeRoom)
		f, wrong := failed[dir]
		if wrong {
			what = fmt.Sprintf("a write failed (%v), and %s", f.Err, what)
		}
		if wrong || err == nil && free < atomicfile.Room {
			all = append(all, &v1alpha1.Problem{Check: check.Disk, Name: dir, What: what})
		}
	}
	return all
}

// lacks is what the store says of its server. What was known stands while the server does not answer.
func (p *Problems) lacks(ctx context.Context, was []*v1alpha1.Problem) (all []*v1alpha1.Problem) {
	lacker, ok := p.Store.(configstore.Lacker)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lacksPatience)
	defer cancel()
	lacks, err := lacker.Lacks(ctx)
	if err != nil {
		return slices.DeleteFunc(slices.Clone(was), func(p *v1alpha1.Problem) bool { return p.GetCheck() != check.StoreServer })
	}
	for _, what := range lacks {
		all = append(all, &v1alpha1.Problem{Check: check.StoreServer, Name: p.Name, What: what})
	}
	return all
}

// identity is what is wrong with the identity in the store.
func (p *Problems) identity() []*v1alpha1.Problem {
	if p.Identity == nil || p.Identity.Problem() == "" {
		return nil
	}
	return []*v1alpha1.Problem{{Check: check.StoreIdentity, Name: p.Name, What: p.Identity.Problem()}}
}
