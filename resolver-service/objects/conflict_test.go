package objects

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// at is an object's JSON with a revision, as "isthmus get -o json" prints it.
func at(object, revision string) string {
	return strings.Replace(object, `"metadata":{`, fmt.Sprintf(`"metadata":{"revision":%q,`, revision), 1)
}

func TestTheRevisionOfAnObjectIsACondition(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	first := s.mustApply(selection("checkout", "orders")).GetResults()[0].GetRevision()
	second := s.mustApply(at(selection("checkout", "ledger"), first)).GetResults()[0].GetRevision()
	_, err := s.apply(false, at(selection("checkout", "cart"), first), east)
	for _, want := range []string{"AppEndpoints shop/checkout", "it is at revision " + second + ", not " + first, "nothing was written"} {
		if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), want) {
			t.Errorf("at an old revision: %v, want %q", err, want)
		}
	}
	if _, err := s.Get(t.Context(), &v1alpha1.GetRequest{Key: &v1alpha1.ObjectKey{Kind: "Cluster", Name: "east"}}); status.Code(err) != codes.NotFound {
		t.Errorf("another object of the same apply: %v, want that it was not written", err)
	}
	if _, err := s.apply(false, at(selection("cart", "orders"), first)); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "it is deleted, and was at revision") {
		t.Errorf("what is not there any more: %v", err)
	}
	contradiction := &v1alpha1.ApplyObject{Json: []byte(at(selection("checkout"), first)), IfRevision: second}
	if _, err := s.Apply(t.Context(), &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{contradiction}}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("two different revisions: %v", err)
	}
	stored, err := s.store.Get(t.Context(), catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "checkout"})
	if err != nil || strings.Contains(string(api.EncodeJSON(stored.Object)), "revision") {
		t.Errorf("the store holds %s (%v)", api.EncodeJSON(stored.Object), err)
	}
}

func TestADeletionMayBeOfOneRevisionAlone(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	first := s.mustApply(selection("checkout", "orders"), east)
	keys, shown := []*v1alpha1.ObjectKey{}, []string{}
	for _, r := range first.GetResults() {
		keys, shown = append(keys, r.GetKey()), append(shown, r.GetRevision())
	}
	second := s.mustApply(selection("checkout", "ledger")).GetResults()[0].GetRevision()
	req := &v1alpha1.DeleteRequest{Keys: keys, IfRevisions: shown, DryRun: true}
	for range 2 { // a dry run first
		_, err := s.Delete(t.Context(), req)
		for _, want := range []string{"AppEndpoints shop/checkout", "it is at revision " + second + ", not " + shown[0], "nothing was written"} {
			if status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), want) {
				t.Errorf("what was changed since it was shown: %v, want %q", err, want)
			}
		}
		req.DryRun = false
	}
	got, err := s.Get(t.Context(), &v1alpha1.GetRequest{})
	if err != nil || len(got.GetObjects()) != 2 {
		t.Errorf("left: %v (%v), want both", got, err)
	}
	if _, err := s.Delete(t.Context(), &v1alpha1.DeleteRequest{Keys: keys, IfRevisions: shown[:1]}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("one revision for two keys: %v", err)
	}
	answer, err := s.Delete(t.Context(), &v1alpha1.DeleteRequest{Keys: keys, IfRevisions: []string{second, ""}, WithHeld: true})
	if err != nil || results(answer) != "checkout deleted, east deleted" || !strings.Contains(string(answer.GetResults()[0].GetHeld()), "ledger") {
		t.Errorf("at the revisions that they have: %v (%v)", answer, err)
	}
}

// TestOfManyWritersNobodysChangeIsLost lets each writer read the object, add an app and apply it,
// and repeat that after a conflict.
func TestOfManyWritersNobodysChangeIsLost(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.mustApply(selection("checkout"))
	const writers, each = 4, 5
	key := &v1alpha1.ObjectKey{Kind: "AppEndpoints", Namespace: "shop", Name: "checkout"}
	add := func(app string) error {
		for {
			answer, err := s.Get(t.Context(), &v1alpha1.GetRequest{Key: key})
			if err != nil {
				return err
			}
			object := answer.GetObjects()[0]
			text := strings.Replace(at(string(object.GetJson()), object.GetRevision()), "]", fmt.Sprintf(`,{"app":%q}]`, app), 1)
			_, err = s.apply(false, strings.Replace(text, "[,", "[", 1))
			if status.Code(err) != codes.Aborted {
				return err
			}
		}
	}
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for i := range each {
				if err := add(fmt.Sprintf("app-%d-%d", w, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	answer, err := s.Get(t.Context(), &v1alpha1.GetRequest{Key: key})
	if n := strings.Count(string(answer.GetObjects()[0].GetJson()), `"app":`); err != nil || n != writers*each {
		t.Errorf("%d of %d changes are there (%v)", n, writers*each, err)
	}
}

func TestADryRunSaysWhatIsHeldForWhoShowsADiff(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.mustApply(selection("checkout", "orders"), east)
	req := &v1alpha1.ApplyRequest{DryRun: true, WithHeld: true}
	for _, o := range []string{selection("checkout", "ledger"), east, selection("cart")} {
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: []byte(o)})
	}
	answer, err := s.Apply(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []struct{ result, held, revision string }{{"changed", selection("checkout", "orders"), "1"}, {"unchanged", east, "1"}, {"created", "", ""}} {
		got := answer.GetResults()[i]
		if got.GetResult() != want.result || string(got.GetHeld()) != want.held || got.GetRevision() != want.revision {
			t.Errorf("object %d: %v, want %v", i, got, want)
		}
	}
	if plain := s.mustApply(selection("checkout", "orders")); len(plain.GetResults()[0].GetHeld()) > 0 {
		t.Error("what is held is told to who does not ask")
	}
}

func TestHistoryIsToldWhereTheStoreKeepsIt(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.mustApply(selection("checkout", "orders"))
	s.mustApply(selection("checkout", "ledger"))
	key := &v1alpha1.ObjectKey{Kind: "AppEndpoints", Namespace: "shop", Name: "checkout"}
	if _, err := s.Delete(t.Context(), &v1alpha1.DeleteRequest{Keys: []*v1alpha1.ObjectKey{key}}); err != nil {
		t.Fatal(err)
	}
	answer, err := s.History(t.Context(), &v1alpha1.HistoryRequest{Key: key})
	if err != nil || len(answer.GetVersions()) != 3 {
		t.Fatalf("%v, %v", answer, err)
	}
	for i, want := range []string{"", selection("checkout", "ledger"), selection("checkout", "orders")} {
		got := answer.GetVersions()[i]
		if string(got.GetJson()) != want || got.GetDeleted() != (i == 0) || got.GetAtUnixMs() == 0 || got.GetRevision() != fmt.Sprint(3-i) {
			t.Errorf("version %d: %v, want %s", i, got, want)
		}
	}
	if answer, err = s.History(t.Context(), &v1alpha1.HistoryRequest{Key: key, Most: 2}); err != nil || len(answer.GetVersions()) != 2 {
		t.Errorf("at most two: %v, %v", answer, err)
	}
	for what, c := range map[string]struct {
		key  *v1alpha1.ObjectKey
		want codes.Code
	}{
		"of what never was":   {&v1alpha1.ObjectKey{Kind: "Cluster", Name: "north"}, codes.NotFound},
		"of what can't be":    {&v1alpha1.ObjectKey{Kind: "Cluster", Name: "North"}, codes.InvalidArgument},
		"of a kind of object": {&v1alpha1.ObjectKey{Kind: "Cluster"}, codes.InvalidArgument},
	} {
		if _, err := s.History(t.Context(), &v1alpha1.HistoryRequest{Key: c.key}); status.Code(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.Server.store = &asked{Writer: s.store}
	if _, err := s.History(t.Context(), &v1alpha1.HistoryRequest{Key: key}); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "store embedded keeps no history") {
		t.Errorf("of a store without one: %v", err)
	}
}

// A Cluster can change what every app may call; nobody reads that.
func TestTooManyEffectsAreCountedNotListed(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	var callees []string
	for i := range mostEffects + 20 {
		callees = append(callees, fmt.Sprint("app-", i))
	}
	answer, err := s.apply(true, selection("checkout", callees...))
	if err != nil {
		t.Fatal(err)
	}
	if listed, more := len(answer.GetEffects()), int(answer.GetEffectsLeftOut()); listed != mostEffects || listed+more < len(callees) {
		t.Errorf("%d effects are listed and %d left out", listed, more)
	}
}

func TestTheLogSaysWhoHasWrittenWhat(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	s.mustApply(selection("checkout", "orders"), east)
	want := `msg="objects written" objects=2 by="anyone, insecure" first="AppEndpoints shop/checkout created 1, Cluster east created 1"`
	if !strings.Contains(log.String(), want) {
		t.Errorf("logged %swant %s", log.String(), want)
	}
	log.Reset()
	s.mustApply(selections(50)...)
	if !strings.Contains(log.String(), "objects=50") || strings.Contains(log.String(), "app-20") {
		t.Errorf("logged %s", log.String())
	}
}

// spoiled is a store where somebody makes an object unusable as soon as it is written.
type spoiled struct{ asked }

func (s *spoiled) Write(context.Context, ...configstore.Write) ([]string, error) {
	return []string{"1000"}, nil
}

func (s *spoiled) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	if _, err := s.asked.Get(ctx, key); s.gets == 1 {
		return configstore.Stored{}, err // before the write
	}
	return configstore.Stored{Revision: "1001"}, configstore.ErrInvalid
}

func TestAnApplyDoesNotWaitForWhatSomebodyHasMadeUnusableSince(t *testing.T) {
	s := newService(t, catalog.DefaultDomain, true)
	s.Server.store = &spoiled{asked{Writer: s.store}}
	s.mustApply(selection("checkout", "orders"))
}

// late is a store whose watch does not report writes.
type late struct{ asked }

func (s *late) Write(context.Context, ...configstore.Write) ([]string, error) {
	return []string{"1000"}, nil
}

func (s *late) Get(ctx context.Context, key catalog.Key) (configstore.Stored, error) {
	if _, err := s.asked.Get(ctx, key); s.gets == 1 {
		return configstore.Stored{}, err // before the write
	}
	return configstore.Stored{Revision: "1000"}, nil
}

// A caller that has given up gets no answer that something was written.
func TestAnApplyThatLookupsDoNotFollowSaysSoWhileItsCallerWaits(t *testing.T) {
	const tries = 10 // a busy machine may take the moment that is left for the answer
	for n := range tries {
		s := newService(t, catalog.DefaultDomain, true)
		s.Server.store = &late{asked{Writer: s.store}}
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		_, err := s.Apply(ctx, &v1alpha1.ApplyRequest{Objects: []*v1alpha1.ApplyObject{{Json: []byte(selection("checkout", "orders"))}}})
		gone := ctx.Err() != nil
		cancel()
		if gone && n < tries-1 {
			continue
		}
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "AppEndpoints shop/checkout was written, but lookups do not follow it yet: nothing was heard of it within") {
			t.Errorf("got %v", err)
		}
		if gone {
			t.Error("the answer came when its caller was gone")
		}
		return
	}
}
