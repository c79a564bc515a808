package objects

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// asked is a store that counts how often it is read.
type asked struct {
	configstore.Writer
	times int
}

func (a *asked) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	a.times++
	return a.Writer.Get(ctx, key)
}

func (a *asked) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	a.times++
	return a.Writer.List(ctx)
}

// A store of files reads all of them to answer for one, so an apply of many objects
// must not ask for each.
func TestAnApplyOfManyObjectsReadsTheStoreOnce(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	store := &asked{Writer: s.Server.store}
	s.Server.store = store
	var objects []string
	for i := range 100 {
		objects = append(objects, selection(fmt.Sprint("app-", i), "orders"))
	}
	s.mustApply(objects[:50]...)
	objects[7] = selection("app-7", "ledger")
	store.times = 0
	answer := s.mustApply(objects...)
	got := results(answer)
	for what, want := range map[string]int{"unchanged": 49, "changed": 50, "created": 50} {
		if n := strings.Count(got, what); n != want {
			t.Errorf("%d times %q, want %d", n, what, want)
		}
	}
	if store.times != 1 {
		t.Errorf("the store was read %d times", store.times)
	}
	req := &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{{Kind: "AppEndpoints", Namespace: "shop", Name: "absent"}}}
	for i := range 20 {
		req.Keys = append(req.Keys, &v1alpha1.ObjectKey{Kind: "AppEndpoints", Namespace: "shop", Name: fmt.Sprint("app-", i)})
	}
	if _, err := s.Delete(t.Context(), req); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "shop/absent") {
		t.Errorf("deleting what is not there among others: %v", err)
	}
}
