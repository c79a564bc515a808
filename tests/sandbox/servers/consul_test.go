package servers

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// consulSays makes a request with a token and returns the status and the body.
func consulSays(t *testing.T, method, url, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Consul-Token", token)
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, strings.TrimSpace(string(text))
}

func TestConsulKeepsWhatItWasGivenThroughAKillAndAStop(t *testing.T) {
	const token = "11111111-2222-3333-4444-555555555555"
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	c, err := StartConsul(ctx, t.TempDir(), ConsulOptions{Management: token})
	programstest.OrSkip(t, err)
	defer func() { _ = c.Kill() }()
	if status, body := consulSays(t, http.MethodPut, c.URL()+"/v1/kv/key", token, "value"); status != http.StatusOK {
		t.Fatalf("put: %d %s", status, body)
	}
	if status, body := consulSays(t, http.MethodPut, c.URL()+"/v1/kv/key", "", "other"); status != http.StatusForbidden {
		t.Errorf("put without a token: %d %s; want that it is refused", status, body)
	}
	for name, end := range map[string]func() error{"kill": c.Kill, "stop": func() error { return c.Stop(ctx) }} {
		if err := end(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		if status, body := consulSays(t, http.MethodGet, c.URL()+"/v1/kv/key?raw", token, ""); status != http.StatusOK || body != "value" {
			t.Errorf("after a %s: %d %q; want the value", name, status, body)
		}
	}
}
