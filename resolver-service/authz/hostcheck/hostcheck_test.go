package hostcheck_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/resolver-service/authz/hostcheck"
)

func TestHosts(t *testing.T) {
	h := hostcheck.Hosts{Names: []string{"Isthmus.Example.com"}, Key: "admin.hosts"}.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for host, code := range map[string]int{
		"127.0.0.1": 200, "127.0.0.1:7480": 200, "10.1.2.3:80": 200, "[::1]:7480": 200, "[::1]": 200, "": 200,
		"localhost": 200, "LOCALHOST:7480": 200, "localhost.": 200, "west.localhost": 200,
		"isthmus.example.com": 200, "isthmus.example.com:7480": 200, "isthmus.example.com.": 200,
		"isthmus.isthmus-system.svc": 200, "isthmus.isthmus-system.svc.cluster.local:7480": 200, "10-1-2-3.shop.pod.cluster.local": 200,

		"evil.example":               421,
		"evil.example:7480":          421,
		"127.0.0.1.evil.example":     421,
		"localhost.evil.example":     421,
		"x.isthmus.example.com":      421,
		"svc":                        421,
		"a.svc.evil.example":         421,
		"a.svc.cluster.local.evil":   421,
		"127.0.0.1@evil.example":     421,
		strings.Repeat("a", 1000):    421,
		"notlocalhost":               421,
		"isthmus.example.com.evil.x": 421,
	} {
		r := httptest.NewRequest("GET", "/readyz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("host %q: %d, want %d", host, w.Code, code)
		}
		if w.Code == 421 && !strings.Contains(w.Body.String(), "admin.hosts") {
			t.Errorf("host %q: not said what to do: %s", host, w.Body)
		}
	}
}
