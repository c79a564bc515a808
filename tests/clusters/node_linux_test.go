package clusters

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// pods is the network of a cluster's pods. None leaves the node but with the node's address, so each
// cluster may have the same.
const pods = "10.244.0.0/16"

// pauseImage holds a pod's network.
const pauseImage = "isthmus.test/pause:1"

// files are what the parts of a node are configured by.
var files = map[string]string{
	"containerd.toml": `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "$DIR/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pauseImage + `"
  restrict_oom_score_adj = true # lowering it takes a right that root may lack
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$DIR/cni"
    conf_dir = "$DIR/cni.d"
`,
	"cni.d/pods.conflist": `{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipam": {"type": "host-local", "subnet": "` + pods + `", "routes": [{"dst": "0.0.0.0/0"}]}}
]}`,
	// Images are not to be removed, nor pods evicted, because of what else is on this machine.
	"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP
containerRuntimeEndpoint: unix://$DIR/containerd.sock
clusterDNS: ["$AT"]
clusterDomain: cluster.local
resolvConf: $DIR/resolv.conf
syncFrequency: 10s
oomScoreAdj: 0
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
authentication: {x509: {clientCAFile: $DIR/kubelet-clients.crt}, anonymous: {enabled: false}}
authorization: {mode: Webhook}
`,
	"kube-proxy.yaml": `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: ` + pods + `
hostnameOverride: node
clientConnection: {kubeconfig: $DIR/system-kube-proxy.kubeconfig}
conntrack: {maxPerCore: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`,
	"masquerade.nft": `table ip pods {
	chain out {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr ` + pods + ` oifname "link0" masquerade
	}
}
`,
	"resolv.conf": "",
}

// node has its own mounts, and processes that all end with it: those of containers, too. The kubelet
// would set limits of the kernel, so it is given copies of them.
const node = `set -e
dir=$1
for n in lib log; do mkdir -p $dir/var/$n; mount --bind $dir/var/$n /var/$n; done
mount -t tmpfs tmpfs /run
mount --make-rshared /
for n in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	mkdir -p $dir/sys/$(dirname $n); cat /proc/sys/$n >$dir/sys/$n; mount --bind $dir/sys/$n /proc/sys/$n
done
ip route add default dev link0 # for addresses of services, which are no machine's
nft -f $dir/masquerade.nft
containerd -c $dir/containerd.toml >$dir/containerd.log 2>&1 &
until [ -S $dir/containerd.sock ]; do sleep 0.1; done
kubelet --config=$dir/kubelet.yaml --kubeconfig=$dir/system-node-node.kubeconfig --hostname-override=node --node-ip=$2 >$dir/kubelet.log 2>&1 &
kube-proxy --config=$dir/kube-proxy.yaml >$dir/kube-proxy.log 2>&1 &
wait
`

// startNode starts containerd, the kubelet and kube-proxy.
func (c *cluster) startNode(ctx context.Context) error {
	known := strings.NewReplacer("$DIR", c.dir, "$AT", c.at.String(), "$CGROUP", c.cgroup)
	for name, text := range files {
		path := filepath.Join(c.dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(known.Replace(text)), 0o644)); err != nil {
			return err
		}
	}
	path, err := c.programs()
	if err != nil {
		return err
	}
	if err := c.makeCgroups(); err != nil {
		return err
	}
	p, err := sandbox.Start(sandbox.Command{
		Name: "node", Path: "unshare", LogDir: c.dir, Place: c.place, Env: []string{"PATH=" + path},
		Args: []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", node, "sh", c.dir, c.at.String()},
	})
	if err != nil {
		return err
	}
	c.kills = append(c.kills, p.Kill)
	for _, state := range []string{"create", "condition=Ready"} {
		if _, err := c.command(ctx, "", "kubectl", "wait", "--for="+state, "node/node", "--timeout=10m"); err != nil {
			return err
		}
	}
	return nil
}

// programs is the PATH of the node, and brings the plugins of its network into one directory.
func (c *cluster) programs() (path string, err error) {
	plugins := filepath.Join(c.dir, "cni")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		return "", err
	}
	var directories []string
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc", "nft", "ip", "kubelet", "kube-proxy", "ptp", "host-local", "loopback"} {
		binary, err := sandbox.Binary(name)
		if err != nil {
			return "", err
		}
		directories = append(directories, filepath.Dir(binary))
		if slices.Contains([]string{"ptp", "host-local", "loopback"}, name) {
			if err := os.Symlink(binary, filepath.Join(plugins, name)); err != nil {
				return "", err
			}
		}
	}
	return strings.Join(append(directories, os.Getenv("PATH")), ":"), nil
}

// hierarchies are the directories in which processes are grouped: one, or with the kernel's first
// version one for each resource.
func hierarchies() (all []string, err error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.controllers"); err == nil {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	for _, e := range entries {
		if e.IsDir() {
			all = append(all, filepath.Join(root, e.Name()))
		}
	}
	return all, err
}

func (c *cluster) makeCgroups() error {
	all, err := hierarchies()
	for _, h := range all {
		err = errors.Join(err, os.Mkdir(filepath.Join(h, c.cgroup), 0o755))
	}
	return err
}

// removeCgroups removes them from within. The kernel lets go of them once their processes are gone.
func (c *cluster) removeCgroups() {
	all, _ := hierarchies()
	for _, h := range all {
		root := filepath.Join(h, c.cgroup)
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			var groups []string
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					groups = append(groups, path)
				}
				return nil
			})
			for _, g := range slices.Backward(groups) {
				_ = os.Remove(g)
			}
			if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
				break
			}
		}
	}
}

// load has containerd take an image for the kubelet's pods.
func (c *cluster) load(t *testing.T, archive string) {
	t.Helper()
	c.must(t, "", "ctr", "--address", c.dir+"/containerd.sock", "--namespace", "k8s.io", "images", "import", archive)
}
