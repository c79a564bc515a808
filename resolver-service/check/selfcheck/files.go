package selfcheck

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
)

// filesPause is how often the files are looked at.
const filesPause = 10 * time.Second

// Files knows which files that the configuration names, such as tokens, roots and kubeconfigs,
// can't be used as they are now. Whatever was read of them before stays in use, so nothing else
// tells of them before the service fails to start again.
type Files struct {
	unusable atomic.Pointer[[]identity.Trusted]
}

// Run looks for them again and again until ctx ends.
func (f *Files) Run(ctx context.Context, look func() []identity.Trusted, log *slog.Logger) error {
	known := map[string]bool{}
	for live.Sleep(ctx, filesPause) {
		all, now := look(), map[string]bool{}
		for _, one := range all {
			now[one.Err.Error()] = true
			if !known[one.Err.Error()] {
				log.Warn("a file of the configuration can't be used as it is now", "key", one.Subject, "err", one.Err)
			}
		}
		if len(known) > 0 && len(now) == 0 {
			log.Info("all files of the configuration can be used again")
		}
		known = now
		f.unusable.Store(&all)
	}
	return nil
}

// Trusted are those files, as certificates that are wrong.
func (f *Files) Trusted() []identity.Trusted {
	if all := f.unusable.Load(); all != nil {
		return *all
	}
	return nil
}
