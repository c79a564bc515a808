package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/faults/network"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// client is a program that looks names up as those in its language do. It prints a line
// for each: the name, then addresses or "none".
type client struct {
	name    string
	command []string
	env     []string
}

// clients builds one of each.
func clients(t *testing.T) []client {
	t.Helper()
	needs(t, "musl-gcc", "node", "java", "javac")
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	built := t.TempDir()
	at := func(name string) string {
		path := programstest.Path(t, name)
		return path
	}
	build := func(command ...string) {
		if out, err := exec.CommandContext(meshtest.Within(t, 4*limit), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
		}
	}
	build("gcc", "-o", filepath.Join(built, "glibc"), filepath.Join(dir, "resolve.c"))
	build(at("musl-gcc"), "-static", "-o", filepath.Join(built, "musl"), filepath.Join(dir, "resolve.c"))
	build(at("javac"), "-d", built, filepath.Join(dir, "Resolve.java"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []client{
		{"glibc", []string{filepath.Join(built, "glibc")}, nil},
		{"musl", []string{filepath.Join(built, "musl")}, nil},
		{"Go's own", []string{self}, []string{goClientVariable + "=", "GODEBUG=netdns=go"}},
		{"Go by cgo", []string{self}, []string{goClientVariable + "=", "GODEBUG=netdns=cgo"}},
		{"Node's lookup", []string{at("node"), filepath.Join(dir, "resolve.js"), "lookup"}, nil},
		{"Node's resolve", []string{at("node"), filepath.Join(dir, "resolve.js"), "resolve"}, nil},
		{"Java", []string{at("java"), "-Xshare:auto", "-cp", built, "Resolve"}, nil},
	}
}

// goClientVariable has the test binary be a client: it is the names, with spaces between.
const goClientVariable = "ISTHMUS_TEST_RESOLVE"

func runGoClient(names string) int {
	for name := range strings.FieldsSeq(names) {
		found, err := net.DefaultResolver.LookupNetIP(context.Background(), "ip", name)
		line := name
		for _, a := range found {
			line += " " + a.Unmap().String()
		}
		if err != nil {
			line += " none: " + err.Error()
		}
		fmt.Println(line)
	}
	return 0
}

// lookUp has a client in a place look names up, with a name server of its own, and returns
// what it found for each, in order: "10.0.0.1, fd00::1", or "none".
func (c client) lookUp(t *testing.T, place *network.Place, nameserver netip.Addr, names ...string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	resolvers := filepath.Join(dir, "resolv.conf")
	switches := filepath.Join(dir, "nsswitch.conf")
	for path, text := range map[string]string{
		resolvers: "nameserver " + nameserver.String() + "\noptions timeout:20 attempts:1\n",
		switches:  "hosts: files dns\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const script = `mount --bind "$1" /etc/resolv.conf; if [ -e /etc/nsswitch.conf ]; then mount --bind "$2" /etc/nsswitch.conf; fi; shift 2; exec "$@"`
	args := append([]string{"--mount", "sh", "-ec", script, "sh", resolvers, switches}, c.command...)
	env := append(os.Environ(), c.env...)
	if i := slices.Index(env, goClientVariable+"="); i >= 0 {
		env[i] += strings.Join(names, " ")
	} else {
		args = append(args, names...)
	}
	cmd := exec.CommandContext(meshtest.Within(t, 4*limit), "unshare", args...)
	cmd.Env = env
	out, err := output(place, cmd)
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.name, err, out)
	}
	found := map[string]string{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		switch {
		case len(words) > 1 && words[1] == "none:":
			found[words[0]] = "none"
		case len(words) > 1:
			list := words[1:]
			slices.Sort(list)
			found[words[0]] = readdressed(slices.Compact(list))
		}
	}
	if len(found) != len(names) {
		t.Errorf("%s found %d of %d names:\n%s", c.name, len(found), len(names), out)
	}
	return found
}

// readdressed writes addresses as Go does: Java writes out the zeros of an IPv6 address.
func readdressed(list []string) string {
	for i, text := range list {
		if a, err := netip.ParseAddr(text); err == nil {
			list[i] = a.String()
		}
	}
	return addresses(list...)
}
