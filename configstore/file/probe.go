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
	return "no server; the directory " + s.dir, s.life.Do(ctx, func(context.Context) error {
		_, _, err := s.list()
		return err
	})
}

// What access(2) can be asked for: to make and rename files in a directory.
const mayChange = 0x2 | 0x1

// MayWrite is that of configstore.Prober. It asks the system, and makes no file.
func (s *Store) MayWrite(ctx context.Context) error {
	return s.life.Do(ctx, func(context.Context) error {
		if err := syscall.Access(s.dir, mayChange); err != nil {
			return fmt.Errorf("store file: write to %s: %w", s.dir, readOnly(err))
		}
		return nil
	})
}
