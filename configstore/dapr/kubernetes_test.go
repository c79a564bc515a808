//go:build clouds || stablecomponents || allcomponents

package dapr

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/storetest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// kubeServer is an API server with an empty ConfigMap, and the link to it.
type kubeServer struct {
	*servers.Kubernetes
	link  serverstest.Link
	admin *kubernetes.Clientset
	dir   string
}

func startKubernetes(t *testing.T) *kubeServer {
	t.Helper()
	t.Setenv("NAMESPACE", "default")
	etcd := serverstest.Start(t, servers.StartEtcd, servers.EtcdOptions{Args: []string{"--unsafe-no-fsync"}})
	api := serverstest.Start(t, servers.StartKubernetes, servers.KubernetesOptions{
		Etcd: etcd.URL(), Args: []string{"--request-timeout=15s"},
		Users: []servers.KubernetesUser{{Name: "admin", Token: "admin", Groups: []string{"system:masters"}}, {Name: "reader", Token: "reader"}, {Name: "writer", Token: "writer"}},
	})
	k := &kubeServer{Kubernetes: api, link: serverstest.NewLink(t, api.Addr()), dir: t.TempDir()}
	config, err := clientcmd.BuildConfigFromFlags("", k.config(t, "admin", api.Addr()))
	if err == nil {
		k.admin, err = kubernetes.NewForConfig(config)
	}
	if err != nil {
		t.Fatal(err)
	}
	k.grant(t, "reader", "get", "list", "watch")
	k.grant(t, "writer", "get", "list", "watch", "update")
	k.update(t, nil)
	return k
}

func (k *kubeServer) config(t *testing.T, user, address string) string {
	t.Helper()
	path := filepath.Join(k.dir, user+".kubeconfig")
	if err := servers.Kubeconfig(path, address, k.CA(), user); err != nil {
		t.Fatal(err)
	}
	return path
}

// grant is the role of docs/reference/stores/dapr.md.
func (k *kubeServer) grant(t *testing.T, user string, verbs ...string) {
	t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"isthmus"}, Verbs: verbs}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: user, APIGroup: "rbac.authorization.k8s.io"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: user, APIGroup: "rbac.authorization.k8s.io"}}}
	_, err := k.admin.RbacV1().Roles("default").Create(t.Context(), role, metav1.CreateOptions{})
	if err == nil {
		_, err = k.admin.RbacV1().RoleBindings("default").Create(t.Context(), binding, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// update replaces the ConfigMap's data by hand, and makes it where there is none.
func (k *kubeServer) update(t *testing.T, data map[string]string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "isthmus"}, Data: data}
	maps := k.admin.CoreV1().ConfigMaps("default")
	_, err := maps.Update(t.Context(), m, metav1.UpdateOptions{})
	if err != nil {
		_, err = maps.Create(t.Context(), m, metav1.CreateOptions{})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (k *kubeServer) open(t *testing.T, user string, c Config) *Store {
	c.Component = yamlOf(t, kindKubernetes, map[string]string{"configMapName": "isthmus", "kubeconfigPath": k.config(t, user, k.link.Addr())})
	return opened(t, c)
}

func TestStoreOnAConfigMap(t *testing.T) {
	k := startKubernetes(t)
	w := k.open(t, "writer", told("", ""))
	got := storetest.Watch(t, k.open(t, "reader", told("", "")), "")
	got.AwaitClusters("")
	subscribed()
	storetest.Put(t, w, cluster("east", "a"), cluster("west", "a"))
	got.AwaitClusters("east=a west=a")
	stored, err := w.Get(t.Context(), cluster("east", "").Key())
	if err != nil {
		t.Fatal(err)
	}
	revisions, err := w.Write(t.Context(), configstore.Write{Object: cluster("east", "b"), If: stored.Revision}, configstore.Write{Delete: cluster("west", "").Key()})
	if err != nil {
		t.Fatal(err)
	}
	got.AwaitClusters("east=b")
	if again, err := w.Get(t.Context(), cluster("east", "").Key()); err != nil || again.Revision != revisions[0] {
		t.Errorf("get: %+v, %v; want revision %s", again, err, revisions[0])
	}
	if _, err := w.Write(t.Context(), configstore.Write{Object: cluster("east", "c"), If: stored.Revision}); !errors.Is(err, configstore.ErrConflict) {
		t.Errorf("write for an old revision: %v; want ErrConflict", err)
	}
	if _, err := k.open(t, "reader", Config{}).Write(t.Context(), configstore.Write{Object: cluster("east", "c")}); !errors.Is(err, configstore.ErrReadOnly) {
		t.Errorf("write by a reader: %v; want ErrReadOnly", err)
	}
	k.update(t, map[string]string{toPoints(eastPath): string(jsonOf(cluster("east", "d"))), toPoints(westPath): "{", "other": "x"})
	got.AwaitClusters("east=d")
	if refused := got.Last().Refused; len(refused) != 1 || refused[0].Key.Name != "west" {
		t.Errorf("refused %v; want west", refused)
	}
	large := configstore.Write{Object: cluster("east", "e")}
	k.update(t, map[string]string{toPoints(eastPath): string(jsonOf(cluster("east", "d"))), "other": strings.Repeat("x", 1<<20-200)})
	if _, err := w.Write(t.Context(), large, configstore.Write{Object: cluster("north", "a")}, configstore.Write{Object: cluster("south", "a")}, configstore.Write{Object: cluster("x", "a")}); !errors.Is(err, configstore.ErrTooLarge) {
		t.Errorf("write beyond 1 MiB: %v; want ErrTooLarge", err)
	}
}

func TestAConfigMapOfAServerThatIsGone(t *testing.T) {
	k := startKubernetes(t)
	k.update(t, map[string]string{toPoints(eastPath): string(jsonOf(cluster("east", "a")))})
	s := k.open(t, "reader", Config{})
	for name, outage := range map[string]func(testing.TB) func(){"refused": k.link.Fail, "dropped": k.link.Cut} {
		got := storetest.Watch(t, s, "")
		got.AwaitClusters("east=a")
		mend := outage(t)
		err := got.AwaitEnd()
		if err == nil || got.Clusters() != "east=a" {
			t.Errorf("%s: Watch ended with %v, and its reader has %q", name, err, got.Clusters())
		}
		mend()
	}
	if err := k.admin.CoreV1().ConfigMaps("default").Delete(t.Context(), "isthmus", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	err := s.Watch(t.Context(), "", func(configstore.Change) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "kubectl create configmap isthmus") {
		t.Errorf("with no ConfigMap: %v; want what to do", err)
	}
}
