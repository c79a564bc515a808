package resolverservice

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// filesPause is how often the files are looked at.
const filesPause = 10 * time.Second

// files knows which files that the configuration names, such as tokens, roots and kubeconfigs, can't
// be used as they are now. Whatever was read of them before stays in use, so nothing else tells of
// them before the service fails to start again.
type files struct {
	unusable atomic.Pointer[[]identity.Trusted]
}

// followFiles looks again and again until ctx ends.
func (s *Service) followFiles(ctx context.Context) error {
	known := map[string]bool{}
	for live.Sleep(ctx, filesPause) {
		all, now := s.cfg.unusableFiles(), map[string]bool{}
		for _, f := range all {
			now[f.Err.Error()] = true
			if !known[f.Err.Error()] {
				s.log.Warn("a file of the configuration can't be used as it is now", "key", f.Subject, "err", f.Err)
			}
		}
		if len(known) > 0 && len(now) == 0 {
			s.log.Info("all files of the configuration can be used again")
		}
		known = now
		s.files.unusable.Store(&all)
	}
	return nil
}

func (f *files) trusted() []identity.Trusted {
	if all := f.unusable.Load(); all != nil {
		return *all
	}
	return nil
}

// unusableFiles checks the configuration as at the start, with the files as they are now, and reads
// all secrets.
func (c *Config) unusableFiles() (all []identity.Trusted) {
	add := func(path string, err error) {
		all = append(all, identity.Trusted{Use: identity.ConfiguredFile, Subject: path, Err: err})
	}
	if c.text != nil {
		_, err := Parse(c.file, c.text)
		var mistakes strict.Errors
		if errors.As(err, &mistakes) {
			for _, m := range mistakes {
				add(m.Path, m)
			}
		}
	}
	strict.Each(c, func(path string, part any) {
		if file, ok := part.(interface{ Look() error }); ok {
			if err := file.Look(); err != nil {
				add(path, strict.Below(path, err))
			}
		}
	})
	return all
}
