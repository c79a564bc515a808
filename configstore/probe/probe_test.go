package probe

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers as a test says.
type server struct {
	configstore.ReadWriter
	server, read, watch, write error
}

func (s server) Server(context.Context) (string, error) { return "Consul 1.21.0", s.server }

func (s server) MayWrite(context.Context) error { return s.write }

func (s server) List(context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	return nil, nil, s.read
}

func (s server) Watch(ctx context.Context, _ configstore.Version, deliver func(configstore.Change) error) error {
	if s.watch != nil {
		return s.watch
	}
	if err := deliver(configstore.Change{Full: true, Version: "7"}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

func steps(r *Result) string {
	var words []string
	for _, s := range r.Steps {
		word := s.Name + " ok"
		switch {
		case s.Err != nil:
			word = s.Name + " failed"
		case !s.Tried:
			word = s.Name + " not tried"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func TestWhatIsTried(t *testing.T) {
	away, denied := errors.New("connection refused"), fmt.Errorf("403: %w", configstore.ErrDenied)
	app := configstore.Scope{App: catalog.App{Namespace: "shop", ID: "checkout"}}
	for _, c := range []struct {
		what  string
		store server
		scope configstore.Scope
		want  string
	}{
		{"all is well", server{}, configstore.Scope{}, "server ok, read ok, watch ok, write ok"},
		{"nobody there", server{server: away, read: away, watch: away}, configstore.Scope{}, "server failed, read not tried, watch not tried, write not tried"},
		{"a wrong token", server{server: denied, read: denied, watch: denied, write: denied}, configstore.Scope{}, "server failed, read failed, watch failed, write failed"},
		{"credentials to read alone", server{write: denied}, configstore.Scope{}, "server ok, read ok, watch ok, write failed"},
		{"a sidecar's credentials", server{server: denied, read: denied, write: denied}, app, "server failed, watch ok"},
	} {
		r := Run(t.Context(), c.store, c.scope, time.Minute)
		if got := steps(r); got != c.want || r.Good() == strings.Contains(c.want, "failed") {
			t.Errorf("%s: %s, good %t; want %s", c.what, got, r.Good(), c.want)
		}
	}
}

type silent struct{ configstore.ReadWriter }

func (silent) List(ctx context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

func TestAStoreThatSaysNothingIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := Run(t.Context(), silent{}, configstore.Scope{}, 10*time.Second)
		if got := steps(r); got != "read failed, watch not tried, write not tried" || r.Steps[0].Took != 10*time.Second ||
			!strings.Contains(r.Steps[0].Err.Error(), "nothing was heard within 10s; see that the address is right") {
			t.Errorf("%s: %+v", got, r.Steps)
		}
	})
}

func TestARealStoreIsTriedAndNotChanged(t *testing.T) {
	s, err := embedded.Open(filepath.Join(t.TempDir(), "isthmus.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Write(t.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: "n"}}); err != nil {
		t.Fatal(err)
	}
	r := Run(t.Context(), s, configstore.Scope{}, time.Minute)
	if !r.Good() || steps(r) != "server ok, read ok, watch ok, write ok" || r.Steps[1].What != "1 object, 0 refused" || r.Steps[2].What != "1 object, 0 refused" {
		t.Errorf("%+v", r)
	}
}
