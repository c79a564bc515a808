package component

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/components/daprd/servicetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

func TestWithoutTheDialerALookupAnswersAnAddress(t *testing.T) {
	service := servicetest.Start(t)
	sidecarOf(t, service, orders, 50002)
	c := newSidecar(t)
	c.component.WithoutDialer(nil)
	if err := c.start(t, checkout, 50001, withService(service)); err != nil {
		t.Fatal(err)
	}
	for app, want := range map[catalog.App]string{orders: "127.0.0.1:50002", checkout: "127.0.0.1:50001"} {
		var got string
		var err error
		for end := time.Now().Add(time.Minute); got != want && time.Now().Before(end); time.Sleep(time.Millisecond) {
			got, err = c.find(app)
		}
		if got != want {
			t.Errorf("%s is at %q (%v), want %q", app, got, err, want)
		}
		if n := testing.AllocsPerRun(100, func() {
			_, _ = c.ResolveID(t.Context(), nr.ResolveRequest{ID: app.ID, Namespace: app.Namespace})
		}); n != 0 {
			t.Errorf("a lookup of %s allocates %v times, want none", app, n)
		}
	}
	if _, err := c.find(catalog.App{Namespace: "shop", ID: "nobody"}); err == nil {
		t.Error("an app that is not there is found")
	}
}

func TestWithoutTheGuardNothingPretendsToHaveIt(t *testing.T) {
	service := servicetest.Start(t)
	unguarded := func() *sidecar {
		s := newSidecar(t)
		s.component.WithoutGuard(errors.New("gRPC has no hook"))
		return s
	}
	enforcing := withService(service)
	enforcing["guard"] = "enforce"
	if err := unguarded().start(t, orders, 50002, enforcing); err == nil || !strings.Contains(err.Error(), "this daprd is without") {
		t.Errorf("guard: enforce without a guard: %v", err)
	}
	s := unguarded()
	if err := s.start(t, orders, 50002, withService(service)); err != nil {
		t.Fatal(err)
	}
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	// The middleware was put there so that nobody gets in without a guard.
	refused := httptest.NewRecorder()
	s.component.guarded(http.NotFoundHandler()).ServeHTTP(refused, httptest.NewRequestWithContext(calledBy(t, authority, checkout), http.MethodGet, "/", nil))
	if refused.Code != http.StatusServiceUnavailable {
		t.Errorf("the middleware answers %d, want 503", refused.Code)
	}
}

func TestWhatIsLostIsSaidInTheLogAndToOperators(t *testing.T) {
	c := newSidecar(t).component
	var out bytes.Buffer
	log := Logger(daprLogger(t, &out))
	c.WithoutDialer(nil)
	c.without.logLost(log)
	if out.Len() > 0 {
		t.Errorf("a program that wants no dialer gets an error: %s", out.String())
	}
	if got := c.without.runtime(); !strings.HasSuffix(got, " without dialer") {
		t.Errorf("operators read %q", got)
	}
	c.WithoutGuard(errors.New("no hook"))
	c.without.logLost(log)
	if got := out.String(); !strings.Contains(got, losses[guardPart]) || !strings.Contains(got, "no hook") || !strings.Contains(got, `"level":"error"`) {
		t.Errorf("the log says %s", got)
	}
	if got := c.without.runtime(); !strings.HasSuffix(got, " without dialer and guard") {
		t.Errorf("operators read %q", got)
	}
}

func TestTheVersionIsThatOfTheModule(t *testing.T) {
	other := &debug.Module{Path: "example.com/daprd", Version: "v9.9.9"}
	for what, tc := range map[string]struct {
		info debug.BuildInfo
		want string
	}{
		"in the daprd of others":   {debug.BuildInfo{Main: *other, Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}}, "v1.2.3"},
		"in our own":               {debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}, Deps: []*debug.Module{other}}, "v1.2.3"},
		"replaced by a fork":       {debug.BuildInfo{Main: *other, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "x", Version: "v1.2.4"}}}}, "v1.2.4"},
		"replaced by a folder":     {debug.BuildInfo{Main: *other, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "../x"}}}}, ""},
		"in a clone":               {debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, ""},
		"in a clone with its time": {debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-20261128-abc"}}, ""},
	} {
		if got := versionIn(&tc.info, module); got != tc.want {
			t.Errorf("%s: %q, want %q", what, got, tc.want)
		}
	}
}
