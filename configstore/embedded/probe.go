package embedded

import (
	"context"
	"errors"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober. There is none: it names the file.
func (s *Store) Server(ctx context.Context) (string, error) {
	return "no server; the file " + s.path, s.life.Do(ctx, func(context.Context) error { return nil })
}

var errProbed = errors.New("it was allowed, and not done")

// MayWrite is that of configstore.Prober. It begins a transaction and takes it back.
func (s *Store) MayWrite(ctx context.Context) error {
	return s.Do(ctx, "write", func(context.Context) error {
		s.writing.Lock()
		defer s.writing.Unlock()
		err := s.update(func(*bbolt.Tx) error { return errProbed })
		if errors.Is(err, errProbed) {
			return nil
		}
		return err
	})
}
