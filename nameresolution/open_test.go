package nameresolution

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// TestCallsUnderWayFollowTheDeclarations has calls under way while the objects change.
func TestCallsUnderWayFollowTheDeclarations(t *testing.T) {
	checkout, mallory := catalog.App{Namespace: "shop", ID: "checkout"}, catalog.App{Namespace: "shop", ID: "mallory"}
	letting := func(mode catalog.GuardMode, apps ...catalog.App) *access {
		return &access{Access: catalog.Access{Mode: mode, Declared: (*catalog.AppSet)(nil).With(apps, nil)}}
	}
	both := letting(catalog.GuardEnforce, checkout, mallory)
	for what, c := range map[string]struct {
		changes []*access
		after   time.Duration // of each change
		ends    bool
	}{
		"nothing changes":                     {},
		"another access says the same":        {changes: []*access{letting(catalog.GuardEnforce, checkout, mallory)}},
		"it is withdrawn":                     {changes: []*access{letting(catalog.GuardEnforce, checkout)}, ends: true},
		"it is withdrawn, and written again":  {changes: []*access{letting(catalog.GuardEnforce, checkout), both}, after: endAfter / 2},
		"the guard only observes":             {changes: []*access{letting(catalog.GuardObserve, checkout)}},
		"the guard enforces later":            {changes: []*access{letting(catalog.GuardObserve, checkout), letting(catalog.GuardEnforce, checkout)}, ends: true},
		"a service that started can't say":    {changes: []*access{{Access: letting(catalog.GuardEnforce, checkout).Access, provisional: true}}},
		"a service that is too old can't say": {changes: []*access{{untold: true}}},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Resolver{self: Instance{App: orders}}
				r.access.Store(both)
				g := newGuard(r, nil, func() (string, bool) { return "west.example", true }, quiet)
				following, stop := context.WithCancel(t.Context())
				defer stop()
				go g.follow(following)
				open := func(app catalog.App) (context.Context, func()) {
					ctx, done, err := g.Caller(catalog.Principal{Domain: "west.example", App: app}).Open(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return ctx, done
				}
				call, done := open(mallory)
				defer done()
				other, otherDone := open(checkout)
				defer otherDone()
				_, ended := open(mallory)
				ended()
				synctest.Wait() // it follows
				for _, a := range c.changes {
					r.access.Store(a)
					time.Sleep(c.after)
				}
				time.Sleep(endAfter - c.after)
				synctest.Wait()
				var refusal *catalog.Refusal
				switch {
				case !c.ends && call.Err() != nil:
					t.Errorf("the call ends: %v", context.Cause(call))
				case c.ends && (!errors.As(context.Cause(call), &refusal) || refusal.Outcome != catalog.Denied):
					t.Errorf("after %s the call's end is %v, want denied", endAfter, context.Cause(call))
				}
				if other.Err() != nil {
					t.Errorf("another caller's call ends: %v", context.Cause(other))
				}
				if len(g.open) != 2 {
					t.Errorf("%d calls are under way, want 2", len(g.open))
				}
			})
		})
	}
}
