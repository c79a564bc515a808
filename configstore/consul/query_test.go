package consul

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/settings"
)

func TestAQuestionThatSomethingInBetweenForgotIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustOpen(t, Config{}, configstore.Scope{})
		s.transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, theirs) }() // takes all and never answers
			return ours, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		if a := s.question(ctx, place{key: s.base(), tree: true, index: 1}); a.err == nil || !strings.Contains(a.err.Error(), "drop connections that are silent") {
			t.Errorf("after %s: %v; want that it is given up", time.Since(begin), a.err)
		}
		if took := time.Since(begin); took < 5*time.Minute+5*time.Minute/16 {
			t.Errorf("given up after %s; Consul may take up to %s to answer", took, 5*time.Minute+5*time.Minute/16)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestATokenGoesNowhereElse(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("%s came to another server, with the token %q", r.URL, r.Header.Get("X-Consul-Token"))
	}))
	defer elsewhere.Close()
	there := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	defer there.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, Config{Address: there.URL, Token: &settings.Secret{File: token}}, configstore.Scope{})
	defer s.Close()
	if _, _, err := s.List(t.Context()); err == nil {
		t.Error("a redirection was taken for a list")
	}
	if _, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", "a")}); err == nil {
		t.Error("a redirection was taken for a write")
	}
}
