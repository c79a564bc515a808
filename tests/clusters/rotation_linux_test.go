package clusters

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// certificateLife is of those that Sentry signs: short, so that each is renewed while the test waits.
const certificateLife = 4 * time.Minute

// rotates changes the root of east in the three steps of docs/how-to/trust.md, under calls.
func (m *mesh) rotates(t *testing.T) {
	pods := m.isthmusPods(t)
	next, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	west, old, new := string(m.roots["west"].Anchors()), string(m.roots["east"].Anchors()), string(next.Anchors())

	// Add the new root. Sidecars read theirs when they start.
	m.bundle(t, west+old+new)
	m.west.apply(t, peer(m.east, old+new))
	for _, c := range m.all() {
		c.injects(t, new)
		c.kubectl(t, "rollout restart -n shop deployment")
	}
	for _, c := range m.all() {
		c.available(t, callees[c.name], "checkout")
	}
	l := steadily(t, m.callers(t))

	// Change the issuer.
	cert, key, err := next.Issuer("east")
	if err != nil {
		t.Fatal(err)
	}
	changed := time.Now()
	m.east.patchSentry(t, map[string][]byte{"issuer.crt": cert, "issuer.key": key})
	m.east.renewed(t, "own certificate", changed)
	m.west.renewed(t, "peer certificate", changed)
	time.Sleep(time.Until(changed.Add(certificateLife/2 + time.Minute))) // sidecars renew theirs, too

	// Remove the old root, and have all renewed once more.
	m.bundle(t, west+new)
	m.west.apply(t, peer(m.east, new))
	removed := time.Now()
	m.east.renewed(t, "own certificate", removed)
	m.west.renewed(t, "peer certificate", removed)

	l.lossless(t)
	if now := m.isthmusPods(t); now != pods {
		t.Errorf("the pods of Isthmus were\n%s\nand are\n%s", pods, now)
	}
	for _, c := range m.all() {
		c.neverLapsed(t)
	}
}

// bundle gives both clusters the same roots. The Secret comes last, since Sentry starts anew when its
// files change, and then compares the two.
func (m *mesh) bundle(t *testing.T, roots string) {
	t.Helper()
	for _, c := range m.all() {
		text, err := json.Marshal(map[string]any{"data": map[string]string{"ca.crt": roots}})
		if err != nil {
			t.Fatal(err)
		}
		c.must(t, "", "kubectl", "patch", "-n", "dapr-system", "configmap", "dapr-trust-bundle", "--type=merge", "-p", string(text))
		c.patchSentry(t, map[string][]byte{"ca.crt": []byte(roots)})
	}
}

// patchSentry changes the Secret that Dapr's Sentry has its issuer from.
func (c *cluster) patchSentry(t *testing.T, files map[string][]byte) {
	t.Helper()
	data := map[string]string{}
	for name, text := range files {
		data[name] = base64.StdEncoding.EncodeToString(text)
	}
	text, err := json.Marshal(map[string]any{"data": data})
	if err != nil {
		t.Fatal(err)
	}
	c.must(t, "", "kubectl", "patch", "-n", "dapr-system", "secret", "dapr-trust-bundle", "--type=merge", "-p", string(text))
}

// injects waits until Dapr's injector gives new pods a root.
func (c *cluster) injects(t *testing.T, root string) {
	t.Helper()
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: probe, namespace: shop, annotations: {dapr.io/enabled: 'true', dapr.io/app-id: probe}}\nspec: {containers: [{name: a, image: a}]}\n"
	text, err := json.Marshal(root)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Trim(strings.TrimSpace(string(text)), `"`)
	meshtest.Eventually(t, patience, func() error {
		out, err := c.command(t.Context(), pod, "kubectl", "create", "--dry-run=server", "-o", "json", "-f", "-")
		if err == nil && !strings.Contains(out, strings.TrimSuffix(want, `\n`)) {
			err = fmt.Errorf("the injector of %s does not give pods the root", c.name)
		}
		return err
	})
}

// isthmus runs the command line in a pod of the service, as people do, and reads what it prints.
func (c *cluster) isthmus(t *testing.T, command string, into any) error {
	t.Helper()
	out, err := c.command(meshtest.Within(t, patience), "", "kubectl", "exec", "-n", "isthmus-system", "deploy/isthmus", "--", "/isthmus", command, "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), into)
	}
	return err
}

// renewed waits until a certificate that "isthmus trust" shows was made after a moment.
func (c *cluster) renewed(t *testing.T, use string, after time.Time) {
	t.Helper()
	meshtest.Eventually(t, certificateLife+patience, func() error {
		var trust struct {
			Items []struct {
				Use       string
				NotBefore time.Time
			}
		}
		if err := c.isthmus(t, "trust", &trust); err != nil {
			return err
		}
		for _, i := range trust.Items {
			if i.Use == use && i.NotBefore.After(after) {
				return nil
			}
		}
		time.Sleep(time.Second)
		return fmt.Errorf("%s: no %s of after %s: %v", c.name, use, after, trust)
	})
}

// isthmusPods are all of the service, with their starts.
func (m *mesh) isthmusPods(t *testing.T) (all string) {
	t.Helper()
	for _, c := range m.all() {
		all += c.kubectl(t, `get pods -n isthmus-system -o jsonpath={range.items[*]}{.metadata.uid}/{.status.containerStatuses[0].restartCount},{end}`) + "\n"
	}
	return all
}

// neverLapsed checks that the word of the other cluster always held.
func (c *cluster) neverLapsed(t *testing.T) {
	t.Helper()
	var status struct {
		Peers []struct {
			Cluster, State string
			Lapses         int
		}
	}
	if err := c.isthmus(t, "status", &status); err != nil {
		t.Fatal(err)
	}
	if len(status.Peers) != 1 || status.Peers[0].State != "connected" || status.Peers[0].Lapses != 0 {
		t.Errorf("%s: %+v, want a peer that is connected and never lapsed", c.name, status.Peers)
	}
}
