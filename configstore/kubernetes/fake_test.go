package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// openFake is a store on a server that is no API server, or one that can't be had to do
// what a test needs.
func openFake(t *testing.T, h http.Handler) *Store {
	t.Helper()
	return storetest.Closing(t, openStore(t, Config{Kubeconfig: serverstest.FakeKubernetes(t, h)}, configstore.Scope{}))
}

// TestAProxyThatEndsEveryWatchAtOnce is not asked in a hot loop.
func TestAProxyThatEndsEveryWatchAtOnce(t *testing.T) {
	var watches atomic.Int32
	s := openFake(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			watches.Add(1)
			return
		}
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"},"items":[]}`)
	}))
	kinds := int32(len(kindsByName()))
	done := make(chan error, 1)
	begin := time.Now()
	go func() { done <- s.Watch(t.Context(), "", func(configstore.Change) error { return nil }) }()
	serverstest.Await(t, "three watches of each kind, or as many", func() bool { return watches.Load() >= 3*kinds })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, configstore.ErrClosed) {
		t.Errorf("Watch ended with %v, want ErrClosed", err)
	}
	took := time.Since(begin)
	if n := watches.Load(); n > kinds*int32(1+took/time.Second) {
		t.Errorf("%d watches in %s, want one a second for each of %d kinds", n, took, kinds)
	}
}

// TestPagesThatExpire: a list that takes longer than its pages are kept is read in one.
func TestPagesThatExpire(t *testing.T) {
	const east = `{"metadata":{"name":"east","uid":"a","generation":1,"resourceVersion":"7"},"spec":{"network":"a"}}`
	s := openFake(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch {
		case !strings.HasSuffix(r.URL.Path, "/clusters"):
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"},"items":[]}`)
		case q.Get("continue") != "":
			w.WriteHeader(http.StatusGone)
			fmt.Fprint(w, `{"kind":"Status","code":410,"reason":"Expired","message":"The provided continue parameter is too old"}`)
		case q.Get("limit") != "":
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"6","continue":"more"},"items":[%s]}`, east)
		default:
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"7"},"items":[%s,%s]}`, east, strings.Replace(east, "east", "west", 1))
		}
	}))
	objects, refused, err := s.List(t.Context())
	if err != nil || len(objects) != 2 || len(refused) != 0 {
		t.Errorf("list: %d objects, refused %v, %v; want both, each once", len(objects), refused, err)
	}
}

// TestAServerThatForgetsAtOnce is not made to list everything in a hot loop.
func TestAServerThatForgetsAtOnce(t *testing.T) {
	var lists atomic.Int32
	s := openFake(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}}`)
			return
		}
		lists.Add(1)
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"},"items":[]}`)
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := time.Now()
	err := s.Watch(ctx, "", func(configstore.Change) error { return nil })
	if apiserver.Code(err) != http.StatusGone {
		t.Errorf("Watch ended with %v; want the server's own words", err)
	}
	took := time.Since(begin)
	if n, kinds := lists.Load(), int32(len(kindsByName())); n > 2*kinds*int32(1+took/longEnough) {
		t.Errorf("%d lists of %d kinds in %s; want a few", n, kinds, took)
	}
}
