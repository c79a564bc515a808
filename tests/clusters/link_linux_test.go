package clusters

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/page"
)

// links does what the page says of an invitation, and then what the commands print.
func (m *mesh) links(t *testing.T, r *reader, commands []page.Command) {
	if len(commands) != 2 {
		t.Fatalf("the page has %d commands to link clusters, want two", len(commands))
	}
	w := m.watch(t)
	invitation := m.meet(t, r, commands[0], commands[1])
	r.types(t, m.east, page.Command{Text: "kubectl apply -f west.yaml"})
	r.types(t, m.west, page.Command{Text: "kubectl apply -f east.yaml"})
	for _, c := range m.all() {
		c.hears(t)
	}
	if from, _, err := m.west.caller(t, "checkout").call(t.Context(), "invoices"); err == nil {
		t.Errorf("%s answers without the trust step", from)
	}
	for _, c := range m.all() {
		m.trusts(t, r, c)
	}
	m.callers(t)
	m.refuses(t, r, commands[1], invitation)
	passed := map[string]string{"the invitation": invitation}
	for _, name := range []string{"east.yaml", "west.yaml"} {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		passed[name] = string(text)
	}
	m.keepToThemselves(t, w, passed)
}

// refuses checks that an invitation is refused by its reason once it is used, late, for another or
// altered, and that nothing is written then.
func (m *mesh) refuses(t *testing.T, r *reader, accept page.Command, used string) {
	t.Helper()
	objects := func() (all string) {
		for _, c := range m.all() {
			all += c.kubectl(t, "get clusters.isthmus.dev -o jsonpath={.items[*]['metadata.name','metadata.generation']}") + ";"
		}
		return all
	}
	ctx, cancel := context.WithCancel(t.Context())
	before, ends := objects(), []<-chan error{} // exec, so that these commands end with ctx
	invite := func(args string) string {
		invited, ended := m.invites(ctx, t, r, page.Command{Text: "exec isthmus link invite --context kind-east --out refused.yaml " + args})
		ends = append(ends, ended)
		return meshtest.LineWith(invited.String(), "isthmus-link-1.")
	}
	defer func() {
		cancel()
		for _, ended := range ends {
			<-ended
		}
	}()
	late := invite("west --expires 1s")
	time.Sleep(2 * time.Second)
	for reason, invitation := range map[string]string{
		"used": used, "expired": late, "wrong-name": invite("north"), "malformed": strings.Replace(used, "Cg", "Ch", 1),
	} {
		again := r.ground(m.west)
		again.In = strings.NewReader(invitation + "\n")
		if _, _, err := again.Type(meshtest.Within(t, patience), accept); err == nil || !strings.Contains(err.Error(), "("+reason+")") {
			t.Errorf("an invitation that is %s: %v", reason, err)
		}
	}
	if after := objects(); after != before {
		t.Errorf("the objects were %s and are %s", before, after)
	}
}

// hears waits until the cluster hears the other one.
func (c *cluster) hears(t *testing.T) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, err := c.command(t.Context(), "", "isthmus", c.as("admin", "status")...)
		if err == nil && !strings.Contains(out, "connected") {
			err = fmt.Errorf("%s: %s", c.name, out)
		}
		return err
	})
}

// invites has east invite, and waits for the string. The command goes on.
func (m *mesh) invites(ctx context.Context, t *testing.T, r *reader, command page.Command) (*meshtest.Printed, <-chan error) {
	t.Helper()
	inviting, invited, ended := r.ground(m.east), &meshtest.Printed{}, make(chan error, 1)
	inviting.Out = invited
	go func() {
		_, _, err := inviting.Type(ctx, command)
		ended <- err
	}()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if text := invited.String(); meshtest.LineWith(text, "isthmus-link-1.") == "" {
			return errors.New("no invitation yet: " + text)
		}
		return nil
	})
	return invited, ended
}

// meet has east invite west, which accepts. Each prints the same words.
func (m *mesh) meet(t *testing.T, r *reader, invite, accept page.Command) (invitation string) {
	t.Helper()
	ctx := meshtest.Within(t, patience)
	invited, ended := m.invites(ctx, t, r, invite)
	invitation = meshtest.LineWith(invited.String(), "isthmus-link-1.")
	accepting := r.ground(m.west)
	accepting.In = strings.NewReader(invitation + "\n")
	out, _, err := accepting.Type(ctx, accept)
	if err = errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	t.Logf("east prints\n%s\nwest prints\n%s", invited, out)
	if words := meshtest.LineWith(out, "words: "); words == "" || words != meshtest.LineWith(invited.String(), "words: ") {
		t.Error("the words differ")
	}
	return invitation
}

// trusts does what "isthmus link trust" prints.
func (m *mesh) trusts(t *testing.T, r *reader, c *cluster) {
	t.Helper()
	there := m.other(c).name
	told := r.types(t, c, page.Command{Text: "isthmus link trust " + there + " --context kind-" + c.name})
	for id, sidecars := range map[string]string{callees[c.name]: "2", "checkout": "1"} {
		if fields := strings.Fields(meshtest.LineWith(told, "shop/"+id)); len(fields) != 3 || fields[1] != sidecars {
			t.Errorf("%s sidecars of %s are not named: %s", sidecars, id, told)
		}
	}
	r.types(t, c, page.Command{Text: meshtest.LineWith(told, "kubectl apply")})
	c.injects(t, string(m.roots[there].Anchors())) // what the two minutes are for
	r.types(t, c, page.Command{Text: meshtest.LineWith(told, "kubectl rollout restart")})
	c.available(t, callees[c.name], "checkout")
}
