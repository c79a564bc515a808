package clusters

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// cluster is Kubernetes with one node, in a network of its own.
type cluster struct {
	name      string
	dir       string
	place     *network.Place
	at        netip.Addr // of the node and all that runs beside pods
	balancer  netip.Addr // what the load balancer of a cloud would have
	api       *servers.Kubernetes
	etcd      string         // URL of what keeps its objects
	kills     []func() error // ends all that was started
	cgroup    string
	authority *sandbox.Authority // of the kubelet's clients
}

// users are those whom the API server knows by a token. RBAC has what each but the first may do.
var users = []servers.KubernetesUser{
	{Name: "admin", Groups: []string{"system:masters"}},
	{Name: "system:kube-controller-manager"}, {Name: "system:kube-scheduler"}, {Name: "system:kube-proxy"},
	{Name: "system:node:node", Groups: []string{"system:nodes"}},
	{Name: "ann"},
}

// newCluster starts a cluster that ends with the test.
func newCluster(t *testing.T, in *network.Network, name string, number byte) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "isthmus-"+name+"-") // sockets in it need short paths
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{
		name: name, dir: dir, cgroup: filepath.Base(dir),
		at: netip.AddrFrom4([4]byte{10, 77, number, 1}), balancer: netip.AddrFrom4([4]byte{10, 77, number, 2}),
	}
	t.Cleanup(func() { c.end(t) })
	if c.place, err = in.Place(c.at, c.balancer); err != nil {
		t.Fatal(err)
	}
	for _, start := range []func(context.Context) error{c.startAPI, c.startControllers, c.startDNS, c.startNode} {
		if err := start(meshtest.Within(t, patience)); err != nil {
			t.Fatalf("cluster %s: %v", name, err)
		}
	}
	return c
}

// end kills what runs; all of the node ends with its first process.
func (c *cluster) end(t *testing.T) {
	if t.Failed() && c.api != nil {
		for _, what := range []string{"pods -o wide", "events --sort-by=.lastTimestamp"} {
			out, err := c.command(context.Background(), "", "kubectl", strings.Fields("get -A "+what)...)
			t.Logf("%s of %s: %v\n%s", what, c.name, err, out)
		}
	}
	for _, kill := range slices.Backward(c.kills) {
		if err := kill(); err != nil {
			t.Error(err)
		}
	}
	c.removeCgroups()
	if t.Failed() {
		t.Logf("the logs of %s are in %s", c.name, c.dir)
		return
	}
	if err := os.RemoveAll(c.dir); err != nil {
		t.Error(err)
	}
}

// run starts a program in the cluster's network, until the test ends.
func (c *cluster) run(program string, args ...string) error {
	binary, err := sandbox.Binary(program)
	if err != nil {
		return err
	}
	p, err := sandbox.Start(sandbox.Command{Name: program, Path: binary, Args: args, LogDir: c.dir, Place: c.place})
	if err == nil {
		c.kills = append(c.kills, p.Kill)
	}
	return err
}

// startAPI starts the API server with the etcd that keeps its objects.
func (c *cluster) startAPI(ctx context.Context) (err error) {
	etcd, err := servers.StartEtcd(ctx, c.dir, servers.EtcdOptions{Place: c.place, Args: []string{"--unsafe-no-fsync"}})
	if err != nil {
		return err
	}
	c.etcd, c.kills = etcd.URL(), append(c.kills, etcd.Kill)
	if c.authority, err = sandbox.NewAuthority(); err != nil {
		return err
	}
	cert, key, err := c.authority.Client("kube-apiserver", "system:masters")
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"kubelet-client.crt": cert, "kubelet-client.key": key, "kubelet-clients.crt": c.authority.Anchors()} {
		if err := os.WriteFile(filepath.Join(c.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	o := servers.KubernetesOptions{
		Etcd: etcd.URL(), Place: c.place, Host: c.at.String(), Controllers: true,
		Args: []string{"--authorization-mode=Node", "--kubelet-preferred-address-types=InternalIP", "--kubelet-client-certificate=" + c.dir + "/kubelet-client.crt", "--kubelet-client-key=" + c.dir + "/kubelet-client.key"},
	}
	for _, u := range users {
		u.Token = c.token(u.Name)
		o.Users = append(o.Users, u)
	}
	if c.api, err = servers.StartKubernetes(ctx, c.dir, o); err != nil {
		return err
	}
	c.kills = append(c.kills, c.api.Kill)
	for _, u := range users {
		if err := servers.Kubeconfig(c.kubeconfig(u.Name), c.api.Addr(), c.api.CA(), c.token(u.Name)); err != nil {
			return err
		}
	}
	return nil
}

// token is that of one of the users, in this cluster alone.
func (c *cluster) token(user string) string { return "token-of-" + user + "-in-" + c.name }

// kubeconfig is the file of one of the users.
func (c *cluster) kubeconfig(user string) string {
	return filepath.Join(c.dir, strings.ReplaceAll(user, ":", "-")+".kubeconfig")
}

// startControllers starts those of Kubernetes. Dapr's injector takes pods of their accounts.
func (c *cluster) startControllers(context.Context) error {
	return errors.Join(
		c.run("kube-controller-manager", "--kubeconfig="+c.kubeconfig("system:kube-controller-manager"), "--leader-elect=false",
			"--use-service-account-credentials", "--service-account-private-key-file="+c.dir+"/service-accounts.key", "--root-ca-file="+c.api.CA(),
			"--node-monitor-grace-period=4m", "--bind-address=127.0.0.1", "--cert-dir="+c.dir),
		c.run("kube-scheduler", "--kubeconfig="+c.kubeconfig("system:kube-scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1", "--cert-dir="+c.dir),
	)
}

// startDNS starts the CoreDNS that pods ask.
func (c *cluster) startDNS(ctx context.Context) error {
	p, err := servers.StartCoreDNS(ctx, c.dir, servers.CoreDNSOptions{
		Listen: netip.AddrPortFrom(c.at, 53), Place: c.place,
		Corefile: fmt.Sprintf(".:53 {\n    errors\n    bind %s\n    kubernetes cluster.local {\n        kubeconfig %s\n    }\n}\n", c.at, c.kubeconfig("admin")),
	})
	if err == nil {
		c.kills = append(c.kills, p.Kill)
	}
	return err
}

// command runs a program beside the pods and returns what it prints. The error has all of it.
func (c *cluster) command(ctx context.Context, stdin, program string, args ...string) (string, error) {
	binary, err := sandbox.Binary(program)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig("admin"), "KUBECACHEDIR="+c.dir+"/cache",
		"HELM_CACHE_HOME="+c.dir+"/helm", "HELM_CONFIG_HOME="+c.dir+"/helm", "HELM_DATA_HOME="+c.dir+"/helm")
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err = c.place.Do(cmd.Start); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("in %s: %s %s: %w\n%s%s", c.name, program, strings.Join(args, " "), err, &out, &complaint)
	}
	return out.String(), err
}

// must is command where it has to go well.
func (c *cluster) must(t *testing.T, stdin, program string, args ...string) string {
	t.Helper()
	out, err := c.command(meshtest.Within(t, patience), stdin, program, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// kubectl is must for the words of a line.
func (c *cluster) kubectl(t *testing.T, line string) string {
	t.Helper()
	return c.must(t, "", "kubectl", strings.Fields(line)...)
}

// apply writes objects.
func (c *cluster) apply(t *testing.T, objects ...string) {
	t.Helper()
	c.must(t, strings.Join(objects, "\n---\n"), "kubectl", "apply", "--server-side", "-f", "-")
}

// client makes requests from beside the pods.
func (c *cluster) client(t *testing.T) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 64, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.place.Dial(ctx, network, address)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
