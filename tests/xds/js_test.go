package xds

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// grpcJS finds Node, and the directory with gRPC for JavaScript.
func grpcJS() (node, modules string, err error) {
	if node, err = sandbox.Binary("node"); err != nil {
		return "", "", err
	}
	dir := os.Getenv("ISTHMUS_GRPC_JS")
	if dir == "" {
		dir = "../../bin/grpc-js"
	}
	if modules, err = filepath.Abs(filepath.Join(dir, "node_modules")); err != nil {
		return "", "", err
	}
	if _, err := os.Stat(filepath.Join(modules, "@grpc", "grpc-js-xds")); err != nil {
		return "", "", fmt.Errorf("gRPC for JavaScript: %w in %s, nor by ISTHMUS_GRPC_JS; get it with: go run ./tests/sandbox/have grpc-js", sandbox.ErrNoBinary, modules)
	}
	return node, modules, nil
}

// program is a JavaScript client of one target.
type program struct {
	m      *mesh
	input  io.Writer
	output *bufio.Reader
	log    *meshtest.Printed // its standard error
}

// javaScript starts a client with the page's code, in which further texts are replaced by others.
func (m *mesh) javaScript(target string, options map[string]any, replace ...string) *program {
	m.t.Helper()
	node, modules, err := grpcJS()
	programstest.OrSkip(m.t, err)
	host, port, _ := strings.Cut(m.xds, ":")
	replace = append(replace, `"isthmus.mesh.example"`, fmt.Sprintf("%q", host), "7410", port, "/certs", m.certificate(checkout))
	dir := m.t.TempDir()
	client, err := os.ReadFile("testdata/client.js")
	if err != nil {
		m.t.Fatal(err)
	}
	for name, text := range map[string][]byte{"isthmus.js": example(m.t, page, "js", "createServer", replace...), "client.js": client} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	given, err := json.Marshal(options)
	if err != nil {
		m.t.Fatal(err)
	}
	p := &program{m: m, log: &meshtest.Printed{}}
	cmd := exec.CommandContext(m.t.Context(), node, filepath.Join(dir, "client.js"), target, string(given))
	cmd.Env = append(os.Environ(), "NODE_PATH="+modules, "TMPDIR="+dir)
	cmd.Stderr = p.log
	input, err := cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	p.input, p.output = input, bufio.NewReader(output)
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() {
		input.Close()
		_ = cmd.Wait() // the context of the test may have ended it
	})
	return p
}

// call is what a call's end looks like: an address, or "error" and the words.
func (p *program) call() string {
	p.m.t.Helper()
	_, err := fmt.Fprintln(p.input)
	var line string
	if err == nil {
		line, err = p.output.ReadString('\n')
	}
	if err != nil {
		p.m.t.Fatalf("the program has ended: %v\n%s", err, p.log)
	}
	return strings.TrimSpace(line)
}

// from tells that calls are answered by these addresses, each of them, and by no other.
func (p *program) from(want ...string) {
	p.m.t.Helper()
	answered := map[string]bool{}
	meshtest.Eventually(p.m.t, meshtest.Patience, func() error {
		address := p.call()
		if !slices.Contains(want, address) {
			clear(answered)
			return fmt.Errorf("answered by %s, want %v\n%s", address, want, p.log)
		}
		if answered[address] = true; len(answered) < len(want) {
			return fmt.Errorf("answered by %v, want %v", answered, want)
		}
		return nil
	})
}

// says tells that the program says this, of a call or on its standard error, or the service in its log.
func (p *program) says(words string) {
	p.m.t.Helper()
	meshtest.Eventually(p.m.t, meshtest.Patience, func() error {
		got := p.call()
		if !strings.HasPrefix(got, "error ") {
			return fmt.Errorf("answered by %s, want an error with %q", got, words)
		}
		for _, text := range []string{got, p.log.String(), p.m.west.Tail(50)} {
			if strings.Contains(text, words) {
				return nil
			}
		}
		return fmt.Errorf("%s\n%s\nwant %q", got, p.log, words)
	})
}

// name is the option by which a JavaScript client names its callee to gateways.
func name(app catalog.App) map[string]any {
	return map[string]any{"grpc.ssl_target_name_override": app.ID + "." + app.Namespace + "." + string(catalog.DefaultDomain)}
}

func TestGRPCJavaScriptCallsBothClusters(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.apply(m.west, m.selection("app: orders"))
	m.apply(m.east, meshtest.Export("shop", "orders", "west"), instance(orders, "east-1", m.server(orders)))
	local := []string{m.server(orders), m.server(orders)}
	m.apply(m.west, instance(orders, "west-1", local[0]), instance(orders, "west-2", local[1]))
	p := m.javaScript("xds:///orders.shop", name(orders))
	p.from(local...)
	m.javaScript("xds:///orders.shop.east", name(orders)).from(m.east.Gateway)
	m.remove(m.west, orders, "west-1", "west-2")
	p.from(m.east.Gateway)
	m.apply(m.west, instance(orders, "west-2", local[1]))
	p.from(local[1])

	// The way without a server name leads through a listener for one app.
	m.remove(m.west, orders, "west-2")
	m.javaScript("xds:///orders.shop", name(orders), "locality: {}", `locality: {}, metadata: {"isthmus.dev/no-server-name": true}`).from(m.ordersAlone)

	m.apply(m.west, m.selection())
	p.says("UNAVAILABLE")
}

func TestGRPCJavaScriptIsToldWhatIsWrong(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.apply(m.west, m.selection("app: orders"), instance(orders, "west-1", m.server(ledger)))
	other, err := sandbox.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	theirs, resolver := m.file("other/ca.crt", other.Anchors()), strings.Split(m.west.Resolver, ":")[1]
	for what, c := range map[string]struct {
		replace []string
		words   string
	}{
		"another app answers": {nil, "No matching subject alternative name found in certificate"},
		"the wrong roots":     {[]string{`path.join(certs, "ca.crt")`, fmt.Sprintf("%q", theirs)}, "unable to verify the first certificate"},
		"another node id":     {[]string{"node: {id: app", `node: {id: "shop/ledger"`}, "refused an xDS client"},
		"another listener":    {[]string{"port: 7410", "port: " + resolver}, "Hostname/IP does not match certificate's altnames"},
		"no such file":        {[]string{`"tls.key"`, `"key.pem"`}, "key.pem"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			of := *m
			of.t = t
			of.javaScript("xds:///orders.shop", name(orders), c.replace...).says(c.words)
		})
	}
}
