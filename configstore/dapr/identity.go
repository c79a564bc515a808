package dapr

import (
	"context"
	"errors"

	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Identifier = (*Store)(nil)

// errThere ends a commit that has nothing to write.
var errThere = errors.New("another has written it")

// Identity is that of configstore.Identifier. It is written without a head, which says that there
// are objects: a store that has lost its data must not look as if it was emptied on purpose.
func (s *Store) Identity(ctx context.Context, anew string) (id string, err error) {
	err = s.with(ctx, "read or write "+s.config.Prefix+identityPath, func(ctx context.Context, l *lease) error {
		to, ok := l.engine.(writer)
		if !ok {
			return nil
		}
		now, err := l.some(ctx, []string{identityPath})
		if id = now.pairs[identityPath].value; err != nil || id != "" || anew == "" {
			return err
		}
		err = to.commit(ctx, []string{identityPath}, func(was snapshot) (rewrite, error) {
			if id = was.pairs[identityPath].value; id != "" {
				return rewrite{}, errThere
			}
			return rewrite{edits: []configstore.Edit{{Path: identityPath, Value: []byte(anew)}}}, nil
		})
		switch {
		case errors.Is(err, errThere), errors.Is(err, configstore.ErrReadOnly):
			return nil
		case err == nil:
			id = anew
		}
		return err
	})
	return id, err
}
