package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/etcd/etcdclient"
	"github.com/isthmus-mesh/isthmus/configstore/open"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/stores/etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// blocks are the blocks of code in a language.
func blocks(text, language string) []string {
	var all []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	return all
}

// The users that the page makes can do what it says, and no more.
func TestTheUsersOfTheDocs(t *testing.T) {
	p := newPlace(t, &secureServer)
	tool := programstest.Path(t, "etcdctl")
	secrets := t.TempDir()
	for _, name := range []string{"isthmus-etcd", "isthmus-reader", "isthmus-shop-checkout"} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(serverstest.PasswordOf(name)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // so that the test can run again on the same server
		for _, name := range []string{"isthmus", "isthmus-reader", "isthmus-shop-checkout"} {
			_, _ = p.Admin.UserDelete(context.Background(), name)
			_, _ = p.Admin.RoleDelete(context.Background(), name)
		}
		_, _ = p.Admin.Delete(context.Background(), api.KeyPrefix, clientv3.WithPrefix())
	})
	for _, block := range blocks(page(t), "sh") {
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.ReplaceAll(block, "/run/secrets", secrets))
		cmd.Env = []string{
			"PATH=" + filepath.Dir(tool) + ":" + os.Getenv("PATH"), "ETCDCTL_DIAL_TIMEOUT=1m", "ETCDCTL_COMMAND_TIMEOUT=1m", "ETCDCTL_ENDPOINTS=" + p.Server.URL(),
			"ETCDCTL_CACERT=" + p.CA, "ETCDCTL_USER=root:" + serverstest.PasswordOf("root"),
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v\n%s", block, err, out)
		}
	}
	as := func(user, file string, scope configstore.Scope) *Store {
		c := p.config(t, user, "replaced")
		c.Prefix, c.Password = "", &settings.Secret{File: filepath.Join(secrets, file)}
		return storetest.Closing(t, p.open(t, c, scope))
	}
	checkout := catalog.App{Namespace: "shop", ID: "checkout"}
	writer := as("isthmus", "isthmus-etcd", configstore.Scope{})
	reader := as("isthmus-reader", "isthmus-reader", configstore.Scope{})
	sidecar := as("isthmus-shop-checkout", "isthmus-shop-checkout", configstore.Scope{App: checkout})
	storetest.Put(t, writer, cluster("east", "a"))
	storetest.Put(t, writer, &catalog.AppEndpoints{App: checkout})
	storetest.Put(t, writer, &catalog.AppEndpoints{App: catalog.App{Namespace: "shop", ID: "orders"}})
	id, err := writer.Identity(t.Context(), "made")
	if got, readErr := reader.Identity(t.Context(), ""); err != nil || readErr != nil || id == "" || got != id {
		t.Errorf("the identity is %q, %v to the writer and %q, %v to the reader", id, err, got, readErr)
	}
	for name, s := range map[string]*Store{"reader": reader, "sidecar": sidecar} {
		f := storetest.Follow(t, s)
		f.AwaitClusters("east=a")
		if _, err := s.Write(t.Context(), configstore.Write{Object: cluster("east", "b")}); err == nil {
			t.Errorf("the %s may write", name)
		}
		want := map[string]int{"reader": 3, "sidecar": 2}[name]
		f.AwaitStatus(fmt.Sprintf("%d objects for the %s", want, name), func(s configstore.Status) bool { return s.Objects == want })
	}
	if _, err := sidecar.Get(t.Context(), catalog.Key{Kind: catalog.KindAppEndpoints, Namespace: "shop", Name: "orders"}); err == nil {
		t.Error("the sidecar may read another app's selection")
	}
}

func TestTheFileOfTheDocs(t *testing.T) {
	var file struct {
		Store map[string]any `yaml:"store"`
	}
	text := blocks(page(t), "yaml")[0]
	if err := yaml.Unmarshal([]byte(strings.ReplaceAll(text, "tls: {ca: /etc/isthmus/etcd-ca.pem}", "tls: {}")), &file); err != nil {
		t.Fatal(err)
	}
	s, err := open.Open(file.Store, configstore.Scope{}, slog.New(slog.DiscardHandler), open.Of("etcd", Open))
	if err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
}

func TestTheLimitsOfTheDocs(t *testing.T) {
	limit := strconv.Itoa(maxObject(Config{}.WithDefaults()))
	for _, want := range []string{limit[:1] + "," + limit[1:4] + "," + limit[4:], fmt.Sprintf("at most %d objects", etcdclient.DefaultMaxTxnOps), fmt.Sprintf("within %.0f s", (etcdclient.KeepaliveTime + etcdclient.KeepaliveTimeout).Seconds()), fmt.Sprintf("every %d objects", etcdclient.PageLength)} {
		if !strings.Contains(page(t), want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}
