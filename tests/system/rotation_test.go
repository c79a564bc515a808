package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// rotating is three clusters, each with a root, a Sentry and a trust domain of its own, and two apps:
// checkout calls the apps of all three, which have their cluster's name.
type rotating struct {
	*domains
	north    *sandbox.Cluster
	clusters []*sandbox.Cluster
	next     *sandbox.Authority // the new root of east
	file     string             // with its certificate
	lives    map[string]int     // of each app's sidecars
	callers  map[string]*sandbox.Sidecar
	callees  map[string]*sandbox.Sidecar
}

// lifetime is of each certificate: long enough for a machine that is busy.
const lifetime = time.Minute

func startRotating(t *testing.T, names ...string) *rotating {
	t.Helper()
	needsBinaries(t)
	s, err := sandbox.New(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	r := &rotating{
		domains: &domains{&mesh{Sandbox: s}, map[string]*sandbox.Authority{}}, lives: map[string]int{},
		callers: map[string]*sandbox.Sidecar{}, callees: map[string]*sandbox.Sidecar{},
	}
	t.Cleanup(func() {
		if err := r.close(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range append(names, "next") {
		if r.roots[name], err = sandbox.NewAuthority(); err != nil {
			t.Fatal(err)
		}
	}
	r.authority, r.next, r.file = r.roots["west"], r.roots["next"], filepath.Join(t.TempDir(), "new.crt")
	if err := os.WriteFile(r.file, r.next.Anchors(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx := meshtest.Within(t, meshtest.Patience)
	for _, name := range names {
		sentry, err := s.Sentry(ctx, sandbox.SentryOptions{Cluster: name, Authority: r.roots[name], TrustDomain: name + ".example", Lifetime: lifetime.String()})
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.Cluster(ctx, sandbox.ClusterOptions{Name: name, Authority: r.roots[name], Sentry: sentry, TrustDomain: name + ".example"})
		if err != nil {
			t.Fatal(err)
		}
		r.clusters = append(r.clusters, c)
		switch name {
		case "west":
			r.west = c
		case "east":
			r.east = c
		case "north":
			r.north = c
		}
	}
	for _, c := range r.clusters {
		r.bundle(t, c, names...)
		for _, o := range r.clusters {
			if o != c {
				r.apply(t, c, r.known(o, c == r.west))
			}
		}
	}
	return r
}

// known is a Cluster object. North's lease lapses soon. With consent the roots follow what the cluster
// announces.
func (r *rotating) known(c *sandbox.Cluster, consents bool) string {
	text := trusting(c, r.roots[c.Name])
	if c == r.north {
		text = strings.Replace(text, meshtest.Cluster(c.Name, c.Gateway), meshtest.ClusterThatLapses(10*time.Second, c.Name, c.Gateway), 1)
	}
	if consents {
		text += "    rotation: accept\n"
	}
	return text
}

// anchors are roots in PEM, by the names of their clusters.
func (r *rotating) anchors(names ...string) (text string) {
	for _, name := range names {
		text += string(r.roots[name].Anchors())
	}
	return text
}

// place writes a file that Sentry watches, whole.
func place(t *testing.T, path string, text []byte) {
	t.Helper()
	err := os.WriteFile(path+".new", text, 0o600)
	if err = errors.Join(err, os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// bundle gives a cluster's Sentry its trust anchors.
func (r *rotating) bundle(t *testing.T, c *sandbox.Cluster, names ...string) {
	t.Helper()
	place(t, c.Sentry.AnchorsFile, []byte(r.anchors(names...)))
}

// issuer has a cluster's Sentry sign by another root.
func (r *rotating) issuer(t *testing.T, c *sandbox.Cluster, by *sandbox.Authority) {
	t.Helper()
	cert, key, err := by.Issuer(c.Name)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(c.Sentry.AnchorsFile)
	place(t, filepath.Join(dir, "issuer.key"), key)
	place(t, filepath.Join(dir, "issuer.crt"), cert)
}

// operator runs the command line by the operator socket of a cluster, which needs no certificate.
func (r *rotating) operator(ctx context.Context, c *sandbox.Cluster, out *meshtest.Printed, args ...string) *exec.Cmd {
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		panic(err) // needsBinaries has looked
	}
	cmd := exec.CommandContext(ctx, binary, append(args, "--socket", filepath.Join(r.Dir(), "isthmus-"+c.Name, "operator-"+c.Name+".sock"))...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// once runs a command to its end, and returns what it printed and whether it failed.
func (r *rotating) once(t *testing.T, c *sandbox.Cluster, args ...string) (string, error) {
	t.Helper()
	var out meshtest.Printed
	err := r.operator(meshtest.Within(t, meshtest.Patience), c, &out, args...).Run()
	return out.String(), err
}

// rotate begins the command, which goes on until it is done or interrupted.
func (r *rotating) rotate(t *testing.T, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	run := &command{interrupt: cancel, done: make(chan struct{})}
	cmd := r.operator(ctx, r.east, &run.Printed, append([]string{"trust", "rotate", "--to", r.file, "--yes"}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		run.err = cmd.Wait()
		close(run.done)
	}()
	t.Cleanup(func() {
		cancel()
		<-run.done
		if t.Failed() {
			t.Logf("the command printed:\n%s", run.String())
		}
	})
	return run
}

// command is a command that runs.
type command struct {
	meshtest.Printed
	interrupt context.CancelFunc
	done      chan struct{}
	err       error // once done
}

// says waits until the command has printed something.
func (c *command) says(t *testing.T, part string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if !strings.Contains(c.String(), part) {
			return fmt.Errorf("the command does not say %q", part)
		}
		return nil
	})
}

// ends waits until the command has ended well.
func (c *command) ends(t *testing.T) {
	t.Helper()
	select {
	case <-c.done:
	case <-time.After(meshtest.Patience):
		t.Fatal("the command does not end")
	}
	if c.err != nil {
		t.Fatalf("the command ended with %v", c.err)
	}
}

// sidecars starts the sidecars of a cluster with trust anchors. Those of before take their calls to
// the end.
func (r *rotating) sidecars(t *testing.T, c *sandbox.Cluster, names ...string) {
	t.Helper()
	for of, id := range map[*map[string]*sandbox.Sidecar]string{&r.callees: c.Name, &r.callers: "checkout"} {
		life := r.lives[c.Name+id]
		r.lives[c.Name+id]++
		next := r.sidecar(t, c, sandbox.SidecarOptions{
			App: catalog.App{Namespace: "shop", ID: id}, Instance: fmt.Sprint("life", life), Env: map[string]string{"DAPR_TRUST_ANCHORS": r.anchors(names...)},
		})
		before := (*of)[c.Name]
		(*of)[c.Name] = next
		if before == nil {
			continue
		}
		meshtest.Eventually(t, meshtest.Patience, func() error { // it is led to
			out, err := r.once(t, c, "sidecars", "shop/"+id)
			if err == nil && !strings.Contains(out, next.Internal) {
				err = fmt.Errorf("no sidecar at %s: %s", next.Internal, out)
			}
			return err
		})
		t.Cleanup(func() { _ = before.Kill() })
	}
}

// flows is calls between clusters that are made all the time.
type flows struct {
	*rotating
	mu    sync.Mutex
	loads map[string]*load
}

// from has a cluster's caller call the apps of clusters.
func (f *flows) from(t *testing.T, c *sandbox.Cluster, to ...*sandbox.Cluster) {
	t.Helper()
	caller := f.callers[c.Name]
	for _, o := range to {
		answers(t, caller, o.Name, o.Name)
	}
	for _, o := range to {
		what := c.Name + " calls " + o.Name
		ctx, stop := context.WithCancel(t.Context())
		l := &load{t: t, what: what, stop: stop, by: map[string]int{}, first: map[string]time.Time{}, last: time.Now()}
		l.users.Go(func() { l.run(ctx, calling(caller, o.Name)) })
		t.Cleanup(func() { l.end() })
		f.end(what)
		f.mu.Lock()
		f.loads[what] = l
		f.mu.Unlock()
	}
}

// end ends calls, of which none may have failed.
func (f *flows) end(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.loads[what]; l != nil {
		l.noneFailed()
		delete(f.loads, what)
	}
}

// restarted moves a cluster's calls, and those of others to it, to sidecars with other trust anchors.
// The former ones go on until they have no more calls.
func (f *flows) restarted(t *testing.T, c *sandbox.Cluster, names ...string) {
	t.Helper()
	callee, caller := f.callees[c.Name], f.callers[c.Name]
	f.sidecars(t, c, names...)
	f.from(t, c, f.clusters...)
	for _, former := range []*sandbox.Sidecar{caller, callee} {
		if err := former.Daprd.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
			t.Fatal(err)
		}
	}
}

func (r *rotating) peerState(t *testing.T, c *sandbox.Cluster, peer string) string {
	t.Helper()
	out, _ := r.once(t, c, "status")
	return meshtest.LineWith(out, peer)
}

// A root is changed over three clusters, each with a root of its own, with calls between all of them.
// One of them is away for a while, one has not consented, and the command is interrupted.
func TestARootIsRotatedOverLinkedClusters(t *testing.T) {
	t.Parallel()
	r := startRotating(t, "west", "east", "north")
	all := []string{"west", "east", "north"}
	for _, c := range r.clusters {
		r.apply(t, c, export("shop", c.Name, `"*"`), selection("shop", "checkout", "app: west", "app: east", "app: north"))
		r.sidecars(t, c, all...)
	}
	f := &flows{rotating: r, loads: map[string]*load{}}
	for _, c := range r.clusters {
		f.from(t, c, r.clusters...)
	}
	began := time.Now()

	// Add: west takes the new root over, north's operator is asked.
	out, err := r.once(t, r.east, "trust", "rotate", "--to", r.file, "--once")
	if err == nil || !strings.Contains(out, "repeat with --yes") {
		t.Fatalf("without consent of the person: %v\n%s", err, out)
	}
	run := r.rotate(t)
	run.says(t, "step 2 of 5")
	run.says(t, "it has not consented to changes by this cluster")
	run.says(t, "its operator runs: isthmus trust accept east")
	run.says(t, "in DAPR_TRUST_ANCHORS")
	run.says(t, "--anchors")

	// It is interrupted, and goes on where it was.
	run.interrupt()
	<-run.done
	run.says(t, "the same command goes on")
	anchors, err := r.once(t, r.east, "trust", "rotate", "--to", r.file, "--anchors")
	if err != nil || strings.Count(anchors, "BEGIN CERTIFICATE") != 4 {
		t.Fatalf("the trust anchors: %v\n%s", err, anchors)
	}
	place(t, r.east.Sentry.AnchorsFile, []byte(anchors))
	run = r.rotate(t)

	// North is away for longer than its lease lasts. Its own calls are not what this is about.
	for _, c := range r.clusters {
		f.end(c.Name + " calls north")
		f.end("north calls " + c.Name)
	}
	if err := r.north.Stop(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if line := r.peerState(t, r.east, "north"); !strings.Contains(line, "stale") {
			return fmt.Errorf("north is not stale yet: %s", line)
		}
		return nil
	})
	run.says(t, "is not heard, or is of an older release; waiting for it")
	if err := r.north.Restart(meshtest.Within(t, meshtest.Patience)); err != nil {
		t.Fatal(err)
	}
	out, err = r.once(t, r.north, "trust", "accept", "east", "--yes")
	for try := 0; err != nil && try < 60; try++ { // until it has heard east
		time.Sleep(time.Second)
		out, err = r.once(t, r.north, "trust", "accept", "east", "--yes")
	}
	if err != nil || !strings.Contains(out, "added") {
		t.Fatalf("north's operator accepts: %v\n%s", err, out)
	}

	// Everyone gets both roots, and restarts its sidecars.
	for _, c := range r.clusters {
		r.bundle(t, c, append(all, "next")...)
		f.restarted(t, c, append(all, "next")...)
	}
	run.says(t, "step 3 of 5")

	// Issue.
	r.issuer(t, r.east, r.next)
	run.says(t, "step 4 of 5")

	// Remove: the command goes on by itself, and north's operator is asked again.
	run.says(t, "step 5 of 5")
	run.says(t, "still trusts")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, err := r.once(t, r.north, "trust", "accept", "east", "--yes")
		if err == nil && !strings.Contains(out, "removed") {
			err = errors.New(out)
		}
		return err
	})
	run.ends(t)
	run.says(t, "done: all peers trust the new root alone")

	// The old root goes from the trust anchors once every sidecar has renewed its certificate.
	time.Sleep(lifetime)
	for _, c := range r.clusters {
		r.bundle(t, c, "west", "north", "next")
		f.restarted(t, c, "west", "north", "next")
	}
	time.Sleep(lifetime * 3 / 4) // they renew at half of it
	for what := range f.loads {
		f.end(what)
	}
	for _, c := range []*sandbox.Cluster{r.west, r.north} {
		out, _ := r.once(t, c, "trust")
		if !strings.Contains(out, "peer root") {
			t.Errorf("%s trusts\n%s", c.Name, out)
		}
	}
	events, err := r.once(t, r.west, "events")
	if err != nil || strings.Count(events, "roots of a peer replaced by those that it announces") < 2 || !strings.Contains(events, "spiffe://east.example/ns/isthmus-system/isthmus-east") {
		t.Errorf("west's events name nobody: %v\n%s", err, events)
	}
	t.Logf("rotated in %s", time.Since(began).Round(time.Second))
	t.Log("\n" + run.String())
}

// Until the old root is dropped, one can go back: also when certificates are signed by the new one.
func TestARotationIsUndone(t *testing.T) {
	t.Parallel()
	r := startRotating(t, "west", "east")
	run := r.rotate(t)
	run.says(t, "step 2 of 5")
	back := func() (string, error) {
		return r.once(t, r.east, "trust", "rotate", "--to", r.file, "--yes", "--once", "--back")
	}
	r.bundle(t, r.east, "west", "east", "next")
	run.says(t, "step 3 of 5")
	run.interrupt()
	<-run.done
	r.issuer(t, r.east, r.next)
	meshtest.Eventually(t, meshtest.Patience, func() error {
		out, err := r.once(t, r.east, "trust", "rotate", "--to", r.file, "--once") // not --yes: it drops nothing
		if err == nil || !strings.Contains(out, "step 4 of 5") {
			err = fmt.Errorf("the new issuer is not in use: %w\n%s", err, out)
		} else {
			err = nil
		}
		return err
	})
	if out, err := back(); err == nil || !strings.Contains(out, "until every certificate is signed by the old root again") || !strings.Contains(out, "the issuer of before") {
		t.Fatalf("going back: %v\n%s", err, out)
	}
	r.issuer(t, r.east, r.roots["east"])
	undo := r.rotate(t, "--back")
	undo.ends(t)
	undo.says(t, "done: all peers trust the old root alone, as before")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if line := r.peerState(t, r.west, "east"); !strings.Contains(line, "connected") {
			return errors.New(line)
		}
		return nil
	})
	t.Log("\n" + undo.String())
}
