package embedded

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober. There is none: it names the file.
func (s *Store) Server(ctx context.Context) (string, error) {
	_, leave, err := s.life.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	return "no server; the file " + s.path, nil
}

var errProbed = errors.New("it was allowed, and not done")

// MayWrite is that of configstore.Prober. It begins a transaction and takes it back.
func (s *Store) MayWrite(ctx context.Context) error {
	_, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	s.writing.Lock()
	defer s.writing.Unlock()
	err = s.update(func(*bbolt.Tx) error { return errProbed })
	if errors.Is(err, errProbed) {
		return nil
	}
	return fmt.Errorf("store embedded: write %s: %w", s.path, bare(err))
}
