package dapr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/isthmus-mesh/isthmus/configstore"
)

var _ configstore.Prober = (*Store)(nil)

// Server is that of configstore.Prober.
func (s *Store) Server(ctx context.Context) (who string, err error) {
	err = s.with(ctx, "ask who is there", func(ctx context.Context, l *lease) error {
		who = fmt.Sprintf("%s: %s", l.settings.component.kind, s.where())
		_, err := l.some(ctx, nil)
		return err
	})
	if err != nil {
		return "", err
	}
	return who, nil
}

// MayWrite is that of configstore.Prober.
func (s *Store) MayWrite(ctx context.Context) error {
	return s.with(ctx, "ask for permission to write", func(ctx context.Context, l *lease) error {
		to, err := l.writer()
		if err != nil {
			return err
		}
		return to.mayWrite(ctx)
	})
}

var errProbed = errors.New("it was allowed, and not done")

// mayWrite locks the row of the head as a batch does, for which PostgreSQL wants the right
// to change it, and rolls that back.
func (p *postgresEngine) mayWrite(ctx context.Context) error {
	err := p.commit(ctx, nil, func(snapshot) (rewrite, error) { return rewrite{}, errProbed })
	if errors.Is(err, errProbed) {
		return nil
	}
	return err
}

// mayWrite runs the script for a batch on a head that can't be there, so that it writes
// nothing. Redis looks at the permissions for all of its keys first.
func (r *redisEngine) mayWrite(ctx context.Context) error {
	done, err := r.run(ctx, rewrite{}, map[string]string{headPath: errProbed.Error() + configstore.NewNonce()})
	if err == nil && done < 0 {
		err = errors.New("it wrote on a condition that could not be met")
	}
	return err
}

// PostgreSQL's codes for a user that it does not let in.
const (
	invalidAuthorization = "28000"
	invalidPassword      = "28P01"
)

// isDenied tells whether a server refuses our credentials, or they do not suffice.
func isDenied(err error) bool {
	if slices.Contains([]string{insufficientPrivilege, invalidAuthorization, invalidPassword}, codeOf(err)) {
		return true
	}
	return deniedByCloud(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		slices.ContainsFunc([]string{"NOAUTH ", "WRONGPASS ", "NOPERM "}, func(code string) bool { return strings.Contains(err.Error(), code) })
}
