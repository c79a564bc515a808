package system

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// run runs a command line that must go well.
func (d *domains) run(t *testing.T, c *sandbox.Cluster, input string, args ...string) (out, errs string) {
	t.Helper()
	out, errs, err := d.isthmus(t, c, input, args...)
	if err != nil {
		t.Fatalf("isthmus %s in %s: %v\n%s%s", strings.Join(args, " "), c.Name, err, out, errs)
	}
	return out, errs
}

// wordsIn are the four words that a command has told.
func wordsIn(t *testing.T, errs string) string {
	t.Helper()
	_, words, found := strings.Cut(errs, "words: ")
	words, _, _ = strings.Cut(words, "\n")
	if !found || len(strings.Fields(words)) != 4 {
		t.Fatalf("no four words in %q", errs)
	}
	return words
}

// What docs/how-to/connect-clusters.md says: an invitation, the printed trust step, and calls.
func TestLinkedClustersCallEachOther(t *testing.T) {
	t.Parallel()
	d := twoDomains(t)
	invitation, _ := d.run(t, d.east, "", "link", "invite", "west", "--expires", "15m", "--gateway", d.east.Gateway)
	out, errs := d.run(t, d.west, invitation, "link", "accept", "-", "--gateway", d.west.Gateway)
	words := wordsIn(t, errs)
	t.Logf("\n%s%s", errs, out)
	if list, _ := d.run(t, d.east, "", "link", "list"); !strings.Contains(list, words) {
		t.Errorf("west shows %q, and east:\n%s", words, list)
	}
	for _, c := range [][2]*sandbox.Cluster{{d.west, d.east}, {d.east, d.west}} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			if state, why := d.peer(t, c[0], c[1].Name); state != "connected" {
				return fmt.Errorf("%s finds %s %s: %s", c[0].Name, c[1].Name, state, why)
			}
			return nil
		})
	}

	// Sidecars with their own root alone get nowhere, and are named.
	d.apply(t, d.east, export("shop", "orders", "west"))
	d.apply(t, d.west, selection("shop", "checkout", "app: orders"))
	orders, checkout := d.app(t, d.east, "orders", "east"), d.app(t, d.west, "checkout", "west")
	d.leadsTo(t, d.west, "shop/checkout", "orders", "east")
	if _, err := checkout.Invoke(meshtest.Within(t, meshtest.Attempt), "orders", "hello", untraced); err == nil {
		t.Error("a call goes through without the trust step")
	}
	for _, c := range []struct {
		here  *sandbox.Cluster
		there string
		app   string
	}{{d.west, "east", "shop/checkout"}, {d.east, "west", "shop/orders"}} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			out, _ := d.run(t, c.here, "", "link", "trust", c.there)
			if fields := strings.Fields(meshtest.LineWith(out, c.app)); len(fields) != 3 || fields[1] != "1" || fields[2] != "yes" {
				return fmt.Errorf("%s says:\n%s", c.here.Name, out)
			}
			return nil
		})
		out, _, _ := d.isthmus(t, c.here, "", "check")
		if !strings.Contains(out, "sidecar-roots") {
			t.Errorf("isthmus check in %s:\n%s", c.here.Name, out)
		}
	}

	// With what is printed, they do.
	ctx := meshtest.Within(t, meshtest.Patience)
	if err := errors.Join(orders.Stop(ctx), checkout.Stop(ctx)); err != nil {
		t.Fatal(err)
	}
	again := func(c *sandbox.Cluster, id, there string) *sandbox.Sidecar {
		anchors, _ := d.run(t, c, "", "link", "trust", there, "--roots")
		if n := strings.Count(anchors, "BEGIN CERTIFICATE"); n != 2 {
			t.Fatalf("%d roots", n)
		}
		return d.sidecar(t, c, sandbox.SidecarOptions{
			App: catalog.App{Namespace: "shop", ID: id}, Instance: "again", Env: map[string]string{"DAPR_TRUST_ANCHORS": anchors},
		})
	}
	again(d.east, "orders", "west")
	answers(t, again(d.west, "checkout", "east"), "orders", "east")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if out, _ := d.run(t, d.west, "", "link", "trust", "east"); !strings.Contains(out, "none here lacks them") {
			return errors.New(out)
		}
		return nil
	})

	if out, errs, err := d.isthmus(t, d.west, "", "link", "unlink", "east"); err == nil || !strings.Contains(out+errs, "--yes") {
		t.Errorf("unlinked without asking: %v\n%s%s", err, out, errs)
	}
	if out, _ := d.run(t, d.west, "", "link", "unlink", "east", "--yes"); !strings.Contains(out, "deleted") {
		t.Errorf("unlink: %s", out)
	}
	if out, _ := d.run(t, d.west, "", "get", "clusters"); strings.Contains(out, "east") {
		t.Errorf("still there: %s", out)
	}
}

// Each side gives its object out or writes it, revokes, and says the reason of a refusal.
func TestLinkByHand(t *testing.T) {
	t.Parallel()
	d := twoDomains(t)
	invitation, _ := d.run(t, d.east, "", "link", "invite", "west", "--gateway", d.east.Gateway)
	refused := func(reason string, c *sandbox.Cluster, input string, args ...string) {
		t.Helper()
		out, errs, err := d.isthmus(t, c, input, args...)
		if err == nil || !strings.Contains(errs, "("+reason+")") {
			t.Errorf("isthmus %s: %v\n%s%s\nwant %s", strings.Join(args, " "), err, out, errs, reason)
		}
	}
	refused("malformed", d.west, "", "link", "accept", strings.TrimSpace(invitation)+"x")
	refused("own-cluster", d.east, invitation, "link", "accept", "-")
	object, _ := d.run(t, d.west, invitation, "link", "accept", "-", "--gateway", d.west.Gateway, "--out", "-")
	if out, _ := d.run(t, d.west, "", "get", "clusters"); strings.Contains(out, "east") {
		t.Errorf("written in spite of --out: %s", out)
	}
	d.apply(t, d.west, object)
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if state, why := d.peer(t, d.west, "east"); state != "connected" {
			return fmt.Errorf("with what was given out, west finds east %s: %s", state, why)
		}
		return nil
	})
	refused("used", d.west, invitation, "link", "accept", "-", "--gateway", d.west.Gateway)

	// With --confirm each side waits for its person, and one who finds other words ends it.
	confirmed := d.invites(t, "--confirm")
	out, errs, err := d.isthmus(t, d.west, confirmed.invitation+"\nno\n", "link", "accept", "-", "--confirm", "--replace")
	if err == nil || !strings.Contains(errs, "(not-confirmed)") {
		t.Errorf("not confirmed: %v\n%s%s", err, out, errs)
	}
	if _, errs, err := confirmed.end("yes"); err == nil || !strings.Contains(errs, "(not-confirmed)") {
		t.Errorf("the inviter is told: %v\n%s", err, errs)
	}
	if out, _ := d.run(t, d.west, "", "get", "clusters", "-o", "json"); strings.Contains(out, "203.0.113.99") {
		t.Errorf("written: %s", out)
	}
	confirmed = d.invites(t, "--confirm", "--out", "-")
	done := make(chan string, 1)
	go func() {
		_, errs, _ := d.isthmus(t, d.west, confirmed.invitation+"\nyes\n", "link", "accept", "-", "--confirm", "--replace", "--gateway", d.west.Gateway)
		done <- errs
	}()
	out, errs, err = confirmed.end("yes")
	if there := <-done; err != nil || wordsIn(t, errs) != wordsIn(t, there) || !strings.Contains(out, d.west.Gateway) {
		t.Errorf("confirmed: %v\n%s%s\nand west: %s", err, out, errs, there)
	}

	second, errs := d.run(t, d.east, "", "link", "invite", "west", "--gateway", d.east.Gateway, "--expires", "1h")
	_, id, _ := strings.Cut(errs, "isthmus link revoke ")
	id, _, _ = strings.Cut(id, " ")
	d.run(t, d.east, "", "link", "revoke", id)
	refused("revoked", d.west, second, "link", "accept", "-", "--gateway", d.west.Gateway)
}

// inviting is an "isthmus link invite" that goes on.
type inviting struct {
	cmd        *exec.Cmd
	in         io.WriteCloser
	out, errs  meshtest.Printed
	invitation string
}

// invites starts an invitation in east that waits, and reads its string.
func (d *domains) invites(t *testing.T, args ...string) *inviting {
	t.Helper()
	binary := programstest.Path(t, "isthmus")
	i := &inviting{cmd: exec.CommandContext(meshtest.Within(t, meshtest.Patience), binary, append([]string{"link", "invite", "west", "--gateway", d.east.Gateway}, args...)...)}
	i.cmd.Env = append(os.Environ(), d.east.CommandLine()...)
	i.cmd.Stdout, i.cmd.Stderr = &i.out, &i.errs
	var err error
	if i.in, err = i.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		i.invitation = meshtest.LineWith(i.out.String()+i.errs.String(), "isthmus-link-1.")
		if i.invitation == "" || !strings.Contains(i.errs.String(), "revoke") {
			return errors.New("no invitation yet")
		}
		return nil
	})
	return i
}

// end answers its question, and waits for its end.
func (i *inviting) end(says string) (out, errs string, err error) {
	_, _ = io.WriteString(i.in, says+"\n") // it may have ended
	err = i.cmd.Wait()
	return i.out.String(), i.errs.String(), err
}
