package objects

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// asked is a store that counts how often it is read, and takes a few writes at once
// only if that is said. It can't get many objects at once.
type asked struct {
	configstore.Writer
	most int // writes at once; 0 for any number

	mu              sync.Mutex
	gets, lists     int
	writes, refused int
	getsBefore      int // the last write; after it, it is asked whether somebody else has written
}

func (a *asked) count(n *int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*n++
}

func (a *asked) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	a.count(&a.gets)
	return a.Writer.Get(ctx, key)
}

func (a *asked) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	a.count(&a.lists)
	return a.Writer.List(ctx)
}

func (a *asked) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	if a.most > 0 && len(writes) > a.most {
		a.count(&a.refused)
		return nil, fmt.Errorf("write of %d objects: %w: it takes %d at once", len(writes), configstore.ErrTooLarge, a.most)
	}
	a.count(&a.writes)
	a.mu.Lock()
	a.getsBefore = a.gets
	a.mu.Unlock()
	return a.Writer.Write(ctx, writes...)
}

// atOnce is a store that gets many objects at once.
type atOnce struct {
	asked
	manys int
}

func (a *atOnce) GetMany(ctx context.Context, keys []catalog.Key) ([]configstore.Got, error) {
	a.count(&a.manys)
	return a.Writer.(configstore.ManyGetter).GetMany(ctx, keys)
}

func selections(n int) []string {
	var objects []string
	for i := range n {
		objects = append(objects, selection(fmt.Sprint("app-", i), "orders"))
	}
	return objects
}

func TestAnApplyAsksTheStoreSeldom(t *testing.T) {
	for _, c := range []struct {
		objects           int
		manyAtOnce        bool
		gets, lists, many int
	}{
		{1, true, 0, 0, 1},
		{600, true, 0, 0, 1},
		{1, false, 1, 0, 0},
		{100, false, 100, 0, 0}, // 16 at a time
		{600, false, 0, 1, 0},
	} {
		s := newService(t, catalog.DefaultDomain, true)
		store := &atOnce{asked: asked{Writer: s.store}}
		s.Server.store = store
		if !c.manyAtOnce {
			s.Server.store = &store.asked
		}
		objects := selections(c.objects)
		s.mustApply(objects[:c.objects/2]...)
		objects[c.objects/4] = selection(fmt.Sprint("app-", c.objects/4), "ledger")
		store.gets, store.lists, store.manys = 0, 0, 0
		got := results(s.mustApply(objects...))
		if store.getsBefore != c.gets || store.lists != c.lists || store.manys != c.many {
			t.Errorf("%d objects, many at once %t: %d gets, %d lists and %d of many at once, want %d, %d and %d", c.objects, c.manyAtOnce, store.getsBefore, store.lists, store.manys, c.gets, c.lists, c.many)
		}
		if n := strings.Count(got, " created"); n != c.objects-c.objects/2 {
			t.Errorf("%d objects were created, want %d", n, c.objects-c.objects/2)
		}
		if n := strings.Count(got, " changed"); c.objects > 1 && n != 1 {
			t.Errorf("%d objects were changed, want 1", n)
		}
	}
}

func TestDeletingManyIsAllOrNothing(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.mustApply(selections(20)...)
	req := &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{{Kind: "AppEndpoints", Namespace: "shop", Name: "absent"}}}
	for i := range 20 {
		req.Keys = append(req.Keys, &v1alpha1.ObjectKey{Kind: "AppEndpoints", Namespace: "shop", Name: fmt.Sprint("app-", i)})
	}
	if _, err := s.Delete(t.Context(), req); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), "shop/absent") {
		t.Errorf("deleting what is not there among others: %v", err)
	}
}

func TestWhatIsTooMuchAtOnceCanBeAppliedInParts(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	store := &asked{Writer: s.store, most: 7}
	s.Server.store = store
	req := &v1alpha1.ApplyRequest{}
	for _, o := range selections(50) {
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: []byte(o)})
	}
	_, err := s.Apply(t.Context(), req)
	for _, want := range []string{"it takes 7 at once", "none of the 50 changes was written", "--in-parts"} {
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), want) {
			t.Errorf("too much at once: %v, want %q", err, want)
		}
	}
	if store.writes != 0 {
		t.Errorf("%d writes were made for an apply that is all or nothing", store.writes)
	}
	store.refused, req.InParts = 0, true
	answer, err := s.Apply(t.Context(), req)
	if err != nil || strings.Count(results(answer), "created") != 50 {
		t.Fatalf("in parts: %s, %v", results(answer), err)
	}
	if store.refused > 3 || store.writes > 9 {
		t.Errorf("in parts: %d writes, and %d that were too large", store.writes, store.refused)
	}
	for i, r := range answer.GetResults() {
		stored, err := s.store.Get(t.Context(), wire.KeyOf(r.GetKey()))
		if err != nil || stored.Revision != r.GetRevision() {
			t.Fatalf("object %d is at revision %s (%v), and the answer says %s", i, stored.Revision, err, r.GetRevision())
		}
	}
}

func TestAnApplyInPartsThatStopsSaysHowFarItCame(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	store := &stopping{asked: asked{Writer: s.store, most: 5}, after: 2}
	s.Server.store = store
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	req := &v1alpha1.ApplyRequest{InParts: true}
	for _, o := range selections(20) {
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: []byte(o)})
	}
	if _, err := s.Apply(t.Context(), req); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "10 of 20 changes were made before, up to AppEndpoints shop/app-9") {
		t.Errorf("got %v", err)
	}
	if stored, _, _ := s.store.List(t.Context()); len(stored) != 10 {
		t.Errorf("%d objects are there", len(stored))
	}
	if !strings.Contains(log.String(), `msg="objects written" objects=10 by=`) {
		t.Errorf("logged %q, want the ten that were written", log.String())
	}
}

// stopping is a store where somebody else comes in between after some writes.
type stopping struct {
	asked
	after int
}

func (s *stopping) Write(ctx context.Context, writes ...configstore.Write) ([]string, error) {
	if s.writes == s.after {
		return nil, configstore.ErrConflict
	}
	return s.asked.Write(ctx, writes...)
}
