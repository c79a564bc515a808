package apiserver

import (
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// serve is a server that answers so.
func serve(t *testing.T, h http.HandlerFunc) *Server {
	t.Helper()
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca, path := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: %q, certificate-authority: %q}}]\ncontexts: [{name: a, context: {cluster: a}}]\ncurrent-context: a\n", server.URL, ca)
	for path, text := range map[string][]byte{path: []byte(text), ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := New(Config{Kubeconfig: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

var pods = Collection{Path: "/api/v1/pods", Query: url.Values{"labelSelector": {"a=b"}}, OnlyMetadata: true}

func TestListReadsPagesAndOnlyWhatIsWanted(t *testing.T) {
	var asked []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI()+" "+r.Header.Get("Accept"))
		if r.URL.Query().Get("continue") == "" {
			fmt.Fprint(w, `{"metadata":{"resourceVersion":"7","continue":"more"},"items":[1]}`)
			return
		}
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"7"},"items":[2]}`)
	})
	items, at, err := s.List(t.Context(), pods)
	if err != nil || at != "7" || len(items) != 2 || string(items[1]) != "2" {
		t.Errorf("list: %s at %q, %v", items, at, err)
	}
	const accept = " application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	if want := []string{"/api/v1/pods?labelSelector=a%3Db&limit=500" + accept, "/api/v1/pods?continue=more&labelSelector=a%3Db&limit=500" + accept}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

func TestFollowTellsEventsUntilTheServerForgets(t *testing.T) {
	var asked []string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		if got := r.Header.Get("Accept"); !strings.Contains(got, "as=PartialObjectMetadata;") {
			t.Errorf("accepts %s", got)
		}
		if len(asked) > 1 {
			fmt.Fprint(w, `{"type":"DELETED","object":{"a":2}}{"type":"ERROR","object":{"code":410,"reason":"Expired","message":"too old"}}`)
			return
		}
		fmt.Fprint(w, `{"type":"ADDED","object":{"a":1}}{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}`)
	})
	var got []string
	opened := 0
	err := s.Follow(t.Context(), pods, "5", Follower{
		Opened: func() { opened++ },
		Mark:   func(version string) { got = append(got, "mark "+version) },
		Take: func(object json.RawMessage, deleted bool) (string, error) {
			got = append(got, fmt.Sprintf("%s %t", object, deleted))
			return "6", nil
		},
	})
	if want := []string{`{"a":1} false`, "mark 7", `{"a":2} true`}; !slices.Equal(got, want) || opened != 2 || !Expired(err) {
		t.Errorf("told %q, opened %d times, %v; want %q", got, opened, err, want)
	}
	query := "/api/v1/pods?allowWatchBookmarks=true&labelSelector=a%3Db&resourceVersion="
	if want := []string{query + "5&watch=true", query + "7&watch=true"}; !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
}

func TestAnEventWithoutAVersionIsNoneOfAnAPIServer(t *testing.T) {
	for _, event := range []string{`{"type":"BOOKMARK","object":{}}`, `{"type":"ADDED","object":{}}`} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, event) })
		err := s.Follow(t.Context(), pods, "5", Follower{Take: func(json.RawMessage, bool) (string, error) { return "", nil }})
		if !errors.Is(err, errNoVersion) {
			t.Errorf("%s: %v", event, err)
		}
	}
}

func TestARefusalIsTheServersOwnWordsOrTheBeginningOfThem(t *testing.T) {
	for answer, want := range map[string]string{
		`{"message":"pods is forbidden"}`: "403 Forbidden: pods is forbidden",
		strings.Repeat("<html>", 100):     "403 Forbidden: <html>",
	} {
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, answer)
		})
		_, _, err := s.List(t.Context(), pods)
		if Code(err) != http.StatusForbidden || !strings.Contains(err.Error(), want) || len(err.Error()) > 300 {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
