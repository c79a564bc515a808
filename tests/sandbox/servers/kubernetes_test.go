package servers

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

func TestKubernetesKeepsWhatItWasGivenThroughAKill(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	dir := t.TempDir()
	kubectl := programstest.Path(t, "kubectl")
	etcd, err := StartEtcd(ctx, dir, EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Kill() }()
	k, err := StartKubernetes(ctx, dir, KubernetesOptions{
		Etcd: etcd.URL(), Users: []KubernetesUser{{Name: "admin", Token: "secret", Groups: []string{"system:masters"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Kill() }()
	config := filepath.Join(dir, "kubeconfig")
	if err := Kubeconfig(config, k.Addr(), k.CA(), "secret"); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		out, err := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig=" + config, "--cache-dir=" + dir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	run("create", "namespace", "shop")
	if err := k.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if out := run("get", "namespace", "shop", "-o", "name"); strings.TrimSpace(out) != "namespace/shop" {
		t.Errorf("after a kill: %q, want the namespace", out)
	}
}
