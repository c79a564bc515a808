package instancestest

import (
	"context"
	"errors"
	"testing"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances"
)

func access() []specification {
	return []specification{
		{"wrong credentials are an error that says so, and never an empty set", denied},
	}
}

func denied(t *testing.T, b Backend) {
	orSkip(t, b.Denied != nil, "this source has no credentials")
	b.Put(t, one())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := b.Denied(t).Watch(ctx, func(c instances.Change) error {
		t.Errorf("said %+v; want an error and nothing else", c)
		return nil
	})
	if !errors.Is(err, configstore.ErrDenied) {
		t.Errorf("Watch ended with %v, want configstore.ErrDenied", err)
	}
	b.names(t, err)
	follow(t, b.Open(t)).awaitSet(one())
}
