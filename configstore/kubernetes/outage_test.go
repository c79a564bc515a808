package kubernetes

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func TestSettings(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	broken, good := filepath.Join(dir, "broken"), filepath.Join(dir, "good")
	text := "apiVersion: v1\nkind: Config\nclusters: [{name: a, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: a, user: {token: t}}]\ncontexts: [{name: a, context: {cluster: a, user: a}}]\ncurrent-context: a\n"
	for path, text := range map[string]string{broken: "clusters: {", good: text} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, c := range map[string]Config{
		"kubeconfig: is missing, and this is no pod of a cluster": {},
		"context: names a context of a kubeconfig":                {Context: "a"},
		"missing: no such file":                                   {Kubeconfig: filepath.Join(dir, "missing")},
		"broken: error loading config":                            {Kubeconfig: broken},
		`good: context "b" does not exist`:                        {Kubeconfig: good, Context: "b"},
		"":                                                        {Kubeconfig: good, Context: "a"},
	} {
		s, err := Open(c, configstore.Scope{}, slog.New(slog.DiscardHandler))
		if want == "" && err == nil {
			err = s.Close()
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Open(%+v): %v; want %q", c, err, want)
		}
		if want == "" && err != nil {
			t.Errorf("Open(%+v): %v", c, err)
		}
	}
}

func TestAScopedStoreWritesNoStatus(t *testing.T) {
	c := strict(t)
	s := openStore(t, c.config(t, "sidecar"), configstore.Scope{App: catalog.App{Namespace: "shop", ID: "checkout"}})
	defer s.Close()
	if s.status != nil {
		t.Error("a sidecar would write statuses")
	}
}

// TestTheRolesAllowNothingElse holds a sidecar to its own selection.
func TestTheRolesAllowNothingElse(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	c.makeNamespaces(t, "shop")
	c.allowSidecar(t, catalog.App{Namespace: "shop", ID: "checkout"})
	mine := openStore(t, c.config(t, "sidecar"), configstore.Scope{App: catalog.App{Namespace: "shop", ID: "checkout"}})
	defer mine.Close()
	if _, _, err := mine.List(t.Context()); err != nil {
		t.Errorf("a sidecar reads what it may: %v", err)
	}
	for name, scope := range map[string]configstore.Scope{
		"another app's selection": {App: catalog.App{Namespace: "shop", ID: "orders"}}, "everything": {},
	} {
		other := openStore(t, c.config(t, "sidecar"), scope)
		_, _, err := other.List(t.Context())
		if err == nil || !strings.Contains(err.Error(), `give the account the verb "list" on `) {
			t.Errorf("a sidecar reads %s: %v; want that it may not", name, err)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := mine.Write(t.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: "a", StaleAfter: catalog.DefaultStaleAfter}, If: configstore.Absent}); !errors.Is(err, configstore.ErrReadOnly) {
		t.Errorf("a sidecar writes: %v; want ErrReadOnly", err)
	}
}

func TestAMissingNamespaceIsNamed(t *testing.T) {
	c := strict(t)
	s := openStore(t, c.config(t, "service"), configstore.Scope{})
	defer s.Close()
	_, err := s.Write(t.Context(), configstore.Write{Object: &catalog.AppExport{App: catalog.App{Namespace: "nowhere", ID: "orders"}}})
	if err == nil || errors.Is(err, configstore.ErrNotFound) || !strings.Contains(err.Error(), "kubectl create namespace nowhere") {
		t.Errorf("write: %v; want the namespace named, and what to do", err)
	}
}

// TestLabelsAreNoChangeAndStay holds what belongs to others: GitOps tools own labels,
// annotations and much else in an object's metadata.
func TestLabelsAreNoChangeAndStay(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	s := openStore(t, c.config(t, "service"), configstore.Scope{})
	w := follow(t, s)
	c.apply(t, apitest.Object("Cluster", "{name: east, labels: {team: shop}}", "{network: a}"))
	serverstest.Await(t, "Cluster east", func() bool { return heard(w, "east") == 1 })
	stored, err := s.Get(t.Context(), eastKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Kubectl("label", "cluster.isthmus.dev", "east", "tier=1"); err != nil {
		t.Fatal(err)
	}
	revisions, err := s.Write(t.Context(), configstore.Write{Object: &catalog.Cluster{Name: "east", Network: "b", StaleAfter: catalog.DefaultStaleAfter}, If: stored.Revision})
	if err != nil {
		t.Fatalf("write for the revision before the label: %v; want that a label is no change", err)
	}
	serverstest.Await(t, "Cluster east again", func() bool { return heard(w, "east") == 2 })
	if revisions[0] == stored.Revision {
		t.Errorf("revision %s stands for two specs", revisions[0])
	}
	out, err := c.Run("", "get", "icl", "east", "-o", "jsonpath={.metadata.labels.team}/{.metadata.labels.tier}")
	if err != nil || out != "shop/1" {
		t.Errorf("labels after a write: %q, %v; want those of others as they were", out, err)
	}
}

// TestDefinitionsThatAreTakenAway: who deletes a definition deletes its objects, one by
// one; a kind that the API server does not know is no empty set.
func TestDefinitionsThatAreTakenAway(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	c.apply(t, apitest.Object("Cluster", "{name: east}", "{network: a}"))
	s := openStore(t, c.config(t, "service"), configstore.Scope{})
	defer s.Close()
	f := configstore.NewFollower(s, func(configstore.Change) error { return nil }, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = f.Run(ctx) }()
	defer func() { cancel(); <-done }()
	status := func() configstore.Status { s, _ := f.Status().Load(); return s }
	serverstest.Await(t, "one object", func() bool { return status().Objects == 1 })
	if err := c.Kubectl("delete", "crd", "appexports.isthmus.dev"); err != nil {
		t.Fatal(err)
	}
	serverstest.Await(t, "an error that says what to do", func() bool {
		err := status().Err
		return err != nil && strings.Contains(err.Error(), "appexports.isthmus.dev") && strings.Contains(err.Error(), "kubectl apply -f deploy/kubernetes/crds.yaml")
	})
	if n := status().Objects; n != 1 {
		t.Errorf("%d objects stand without the definition of another kind, want 1", n)
	}
	if _, err := s.Get(t.Context(), catalog.Key{Kind: catalog.KindAppExport, Namespace: "shop", Name: "orders"}); err == nil || errors.Is(err, configstore.ErrNotFound) {
		t.Errorf("get of a kind with no definition: %v; want an error that is not ErrNotFound", err)
	}
	if err := c.Kubectl("apply", "-f", manifests+"crds.yaml"); err != nil {
		t.Fatal(err)
	}
	serverstest.Await(t, "all well", func() bool { return status().Err == nil && status().Objects == 1 })
}

// TestAnEtcdThatWasPutBackWithoutABump is a restore against Kubernetes's advice: the
// resourceVersions go backwards.
func TestAnEtcdThatWasPutBackWithoutABump(t *testing.T) {
	c := strict(t)
	c.wipe(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := openStore(t, c.config(t, "service"), configstore.Scope{})
	follow(t, s)
	c.apply(t, apitest.Object("Cluster", "{name: east}", "{network: a}"))
	c.awaitCondition(t, eastKey, "True")
	copied := filepath.Join(t.TempDir(), "copy")
	if err := errors.Join(c.API.Kill(), c.Etcd.Stop(ctx), os.CopyFS(copied, os.DirFS(c.Etcd.Data())), c.Etcd.Start(ctx), c.API.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	c.apply(t, apitest.Object("Cluster", "{name: west}", "{network: a}"))
	again := follow(t, openStore(t, c.config(t, "service"), configstore.Scope{}))
	serverstest.Await(t, "Cluster west", func() bool { return heard(again, "west") == 1 })
	if err := errors.Join(c.API.Kill(), c.Etcd.PutBack(ctx, copied), c.API.Start(ctx)); err != nil {
		t.Fatal(err)
	}
	from := again.All()[len(again.All())-1].Version
	stop := errors.New("enough")
	serverstest.Await(t, "an answer to a watch", func() bool {
		err := s.Watch(ctx, from, func(c configstore.Change) error {
			if !c.Full || len(c.Objects) != 1 {
				t.Errorf("after the restore %+v; want the full set: Cluster east", c)
			}
			return stop
		})
		return errors.Is(err, stop)
	})
}

// TestSomethingElseThanAnAPIServer is a wrong port, or a page that asks to log in.
func TestSomethingElseThanAnAPIServer(t *testing.T) {
	for what, c := range map[string]struct{ answer, want string }{
		"a page":     {"<html>log in</html>", "the answer is not JSON"},
		"other JSON": {"{}", "is this an API server?"},
	} {
		t.Run(what, func(t *testing.T) {
			s := openFake(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(c.answer)) }))
			err := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("watch: %v; want %q", err, c.want)
			}
		})
	}
}
