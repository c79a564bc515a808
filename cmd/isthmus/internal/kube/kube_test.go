package kube

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: west, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: ann, user: {token: secret}}]
contexts:
- {name: west, context: {cluster: west, user: ann}}
- {name: broken, context: {cluster: gone, user: ann}}
`

func TestAContextIsTheOneThatIsNamedOrTheCurrentOne(t *testing.T) {
	dir := t.TempDir()
	none, west := filepath.Join(dir, "none"), filepath.Join(dir, "west")
	for path, text := range map[string]string{none: kubeconfig, west: kubeconfig + "current-context: west\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ file, named, want, wrong string }{
		{west, "", "west", ""},
		{none, "west", "west", ""},
		{none, "", "", "no context is the current one in " + none},
		{west, "wets", "", `did you mean "west"?`},
		{west, "north", "", "it has broken, west"},
		{west, "broken", "", `names cluster "gone" and user "ann", and not both are there`},
		{filepath.Join(dir, "gone"), "", "", "no such file"},
	} {
		cluster, err := Open(c.file, c.named)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("context %q of %s: %v; want %s", c.named, c.file, err, c.wrong)
			}
			continue
		}
		if err != nil || cluster.Context != c.want || cluster.Host() != "https://127.0.0.1:1" {
			t.Errorf("context %q of %s: %v, %v", c.named, c.file, cluster, err)
		}
	}
	if _, err := Open(west, "north"); !errors.Is(err, ErrNoContext) {
		t.Error(err)
	}
	t.Setenv("KUBECONFIG", west)
	if cluster, err := Open("", ""); err != nil || cluster.Context != "west" {
		t.Errorf("KUBECONFIG: %v, %v", cluster, err)
	}
}
