package system

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// While Sentry is frozen, an operator asks by the certificate that the command line has kept or, on
// the service's own machine, by its socket.
func TestAnOperatorWorksWhileSentryIsFrozen(t *testing.T) {
	t.Parallel()
	authority, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "isthmus") // a short path: sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s, err := sandbox.New(dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{Sandbox: s, authority: authority}
	t.Cleanup(func() {
		if err := m.close(); err != nil {
			t.Error(err)
		}
	})
	binary := programstest.Path(t, "isthmus")
	name := "frozen-" + strconv.Itoa(os.Getpid()) // of all services on this machine, it is this one's
	ctx := meshtest.Within(t, meshtest.Patience)
	sentry, err := s.Sentry(ctx, sandbox.SentryOptions{Cluster: name, Authority: authority})
	if err != nil {
		t.Fatal(err)
	}
	c, err := s.Cluster(ctx, sandbox.ClusterOptions{Name: name, Authority: authority, Sentry: sentry})
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join(t.TempDir(), "cache")
	ask := func(where, what string, env ...string) (out, errs string, err error) {
		args := strings.Fields(what)
		if where != "" {
			args = append(args, "--server", where, "--sentry", sentry.Address, "--trust-anchors", sentry.AnchorsFile)
		}
		cmd := exec.CommandContext(meshtest.Within(t, meshtest.Patience), binary, append(args, "--cluster", name, "--timeout", "1m")...)
		cmd.Env = append([]string{"HOME=" + t.TempDir(), "XDG_CACHE_HOME=" + cache}, env...)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err = cmd.Run()
		return stdout.String(), stderr.String(), err
	}
	if out, errs, err := ask(c.Resolver, "status"); err != nil || errs != "" {
		t.Fatalf("before: %v\n%s%s", err, out, errs)
	}
	if err := sentry.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sentry.Signal(syscall.SIGCONT) })

	for _, what := range []string{"status", "apps"} {
		if out, errs, err := ask(c.Resolver, what); err != nil || strings.Contains(errs, "Sentry") {
			t.Errorf("%s by the kept certificate: %v\n%s%s", what, err, out, errs)
		}
	}
	if err := os.RemoveAll(cache); err != nil {
		t.Fatal(err)
	}
	if out, errs, err := ask(c.Resolver, "status"); err != nil || !strings.Contains(errs, "Sentry at "+sentry.Address+" does not answer; asking by the operator socket /") {
		t.Errorf("by the socket in place of Sentry: %v\n%s%s", err, out, errs)
	}
	if out, errs, err := ask("", "status"); err != nil || errs != "" || !strings.Contains(out, name) {
		t.Errorf("by the socket, with nothing said: %v\n%s%s", err, out, errs)
	}
	out, _, err := ask(c.Resolver, "check")
	if err == nil || !strings.Contains(out, "FAIL  sentry") || !strings.Contains(out, "no answer within 3s") || strings.Contains(out, ", 0 ok") {
		t.Errorf("check says %v\n%s", err, out)
	}
	if out, errs, err := ask("", "status", "ISTHMUS_SOCKET=off"); err == nil || !strings.Contains(errs, "nothing says as whom to ask") {
		t.Errorf("with the search for sockets off: %v\n%s%s", err, out, errs)
	}
	if out, errs, err := ask(c.Resolver, "status", "ISTHMUS_SOCKET=off"); err == nil || !strings.Contains(errs, "no answer within") {
		t.Errorf("without any way: %v\n%s%s", err, out, errs)
	}
}
