package file

import (
	"context"
	"fmt"
	"syscall"

	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober. There is none: it names the directory.
func (s *Store) Server(ctx context.Context) (string, error) {
	_, leave, err := s.life.Enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	if _, _, err := s.list(); err != nil {
		return "", err
	}
	return "no server; the directory " + s.dir, nil
}

// What access(2) can be asked for: to make and rename files in a directory.
const mayChange = 0x2 | 0x1

// MayWrite is that of configstore.Prober. It asks the system, and makes no file.
func (s *Store) MayWrite(ctx context.Context) error {
	_, leave, err := s.life.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := syscall.Access(s.dir, mayChange); err != nil {
		return fmt.Errorf("store file: write to %s: %w", s.dir, readOnly(err))
	}
	return nil
}
