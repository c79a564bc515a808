package settings

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each mistake is made on a real server.
func TestAdviceAboutTLS(t *testing.T) {
	advice := Advice{CA: "set ca", Name: "set serverName", Plain: "take http", Secure: "take https"}
	handler := http.NotFoundHandler()
	plain, secure := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	for name, c := range map[string]struct {
		url    string
		config *tls.Config
		want   string
	}{
		"another authority": {secure.URL, &tls.Config{RootCAs: x509.NewCertPool()}, "set ca"},
		"another name":      {secure.URL, &tls.Config{RootCAs: roots, ServerName: "store.invalid"}, "set serverName"},
		"a plain server":    {strings.Replace(plain.URL, "http:", "https:", 1), nil, "take http"},
		"none of these":     {"http://127.0.0.1:1", nil, ""},
	} {
		transport := &http.Transport{TLSClientConfig: c.config}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := transport.RoundTrip(request)
		if err == nil {
			response.Body.Close()
			t.Errorf("%s: an answer", name)
			continue
		}
		got := advice.To(err)
		if !errors.Is(got, err) || !strings.HasSuffix(got.Error(), c.want) || c.want == "" && got != err {
			t.Errorf("%s: %v, want advice %q", name, got, c.want)
		}
		transport.CloseIdleConnections()
	}
	said := errors.New("400 (Client sent an HTTP request to an HTTPS server.)")
	if got := advice.To(said); !strings.HasSuffix(got.Error(), "; take https") {
		t.Errorf("plain text to TLS: %v", got)
	}
	if err := (Advice{}).To(said); err != said {
		t.Errorf("no advice to give: %v", err)
	}
	if err := advice.To(nil); err != nil {
		t.Errorf("no error: %v", err)
	}
}
