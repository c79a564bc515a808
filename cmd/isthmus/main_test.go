package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
	"github.com/isthmus-mesh/isthmus/tests/page"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"isthmus": main})
}

// Every command takes the flags that say which service to ask, but for those that ask none.
func TestCommandsTakeTheConnection(t *testing.T) {
	alone := []string{"serve", "actors", "validate", "context", "store", "demo", "man", "options", "completion", "help"}
	local := []string{"isthmus dev join", "isthmus dev jwks"} // where there is a service yet to come, or a file
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if cmd.HasParent() || !slices.Contains(alone, sub.Name()) {
				check(sub)
			}
		}
		if !cmd.HasSubCommands() && !slices.Contains(local, cmd.CommandPath()) && (cmd.Flag("context") == nil || cmd.Flag("server") == nil || cmd.Flag("timeout") == nil) {
			t.Errorf("%s has no flags --context, --server and --timeout; give it those of a connection", cmd.CommandPath())
		}
	}
	check(newRoot())
}

// TestScripts runs the scripts in testdata/script, each against a service of its own.
// A script gets ISTHMUS_SERVER, a service in plain text where orders runs; those whose
// name begins with "mtls" get one with mTLS, and directories with identities in it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup:               func(e *testscript.Env) error { return setUp(t, e) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":    exits,
			"jsonkeys": jsonKeys,
			"freeport": freePort,
			"waitfor":  waitFor,
			"hold":     hold,
			"says":     says,
			"server":   runServer,
			"fill":     fill,
			"kubectl":  kubectl,
			"mcp":      mcpAsk,
		},
		Condition: hasServer,
	})
}

func setUp(t *testing.T, e *testscript.Env) error {
	e.Values[serversKey{}] = map[string]started{}
	repository, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	e.Setenv("REPOSITORY", repository)
	var ca *identitytest.CA
	serviceID := "{insecure: true}"
	if strings.HasPrefix(filepath.Base(e.WorkDir), "script-mtls") {
		ca = identitytest.NewCA(t)
		if strings.HasPrefix(filepath.Base(e.WorkDir), "script-mtls-check") {
			ca = identitytest.NewCA(t, identitytest.LongLived)
		}
		f := ca.Config(identity.ServiceApp("", "west")).Files
		serviceID = fmt.Sprintf("{files: {cert: %s, key: %s, ca: %s}}", f.Cert, f.Key, f.CA)
		for name, app := range map[string]catalog.App{"operator": identity.CLIApp(""), "checkout": {Namespace: "shop", ID: "checkout"}} {
			if err := writeIdentity(filepath.Join(e.WorkDir, name), ca, app); err != nil {
				return err
			}
		}
		if err := writeIdentity(filepath.Join(e.WorkDir, "stranger"), identitytest.NewCA(t), identity.CLIApp("")); err != nil {
			return err
		}
	}
	address, err := runService(e, serviceID)
	if err != nil {
		return err
	}
	e.Setenv("ISTHMUS_SERVER", address)
	elsewhere := httptest.NewServer(http.NotFoundHandler()) // something that can be connected to
	e.Defer(elsewhere.Close)
	e.Setenv("SOMETHING", elsewhere.Listener.Addr().String())
	e.Setenv("HOME", e.WorkDir)
	e.Setenv("ISTHMUS_SOCKET", "off")       // other services run on this machine
	e.Setenv("GORACE", "atexit_sleep_ms=0") // a second per command otherwise
	if ca != nil {
		return nil
	}
	return registerOrders(e, address)
}

// runService runs a service until the script ends.
func runService(e *testscript.Env, id string) (address string, err error) {
	text := fmt.Sprintf("cluster: west\ndataDir: %s/data\nlisten: {resolver: '127.0.0.1:0'}\nidentity: %s\n"+
		"development: {loopback: true}\ninstances: {delegates: [{networks: [127.0.0.0/8], apps: [\"*\"]}]}\n", e.WorkDir, id)
	cfg, err := resolverservice.Parse("isthmus.yaml", []byte(text))
	if err != nil {
		return "", err
	}
	cfg.Version = "v0.0.0-test"
	s := resolverservice.New(cfg, slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err := s.Listen(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	e.Defer(func() {
		cancel()
		if err := <-done; err != nil {
			e.T().Log(err)
			e.T().FailNow()
		}
	})
	return s.Addr("resolver").String(), nil
}

// registerOrders has an instance of shop/orders for as long as the script runs.
func registerOrders(e *testscript.Env, address string) error {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	e.Defer(func() { conn.Close() })
	stream, err := v1alpha1.NewResolverClient(conn).Watch(context.Background())
	if err != nil {
		return err
	}
	hello := &v1alpha1.Hello{
		App:      &v1alpha1.App{Namespace: "shop", Id: "orders"},
		Instance: &v1alpha1.Instance{Id: "one", Address: "10.0.0.1:50002"},
	}
	if err := stream.Send(&v1alpha1.WatchRequest{Request: &v1alpha1.WatchRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

func writeIdentity(dir string, ca *identitytest.CA, app catalog.App) error {
	pair := ca.Issue(app)
	return errors.Join(
		os.MkdirAll(dir, 0o700),
		os.WriteFile(filepath.Join(dir, "cert.pem"), pair.Cert, 0o600),
		os.WriteFile(filepath.Join(dir, "key.pem"), pair.Key, 0o600),
		os.WriteFile(filepath.Join(dir, "ca.pem"), ca.PEM(), 0o600),
	)
}

// exits runs a command and checks its exit code: exits CODE COMMAND...
func exits(ts *testscript.TestScript, _ bool, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// jsonKeys checks the keys of a JSON object that a command has printed, in their
// order: jsonkeys PATH KEY...; PATH leads there, such as "." or "routes.0". Whatever is printed
// begins with its version and its kind.
func jsonKeys(ts *testscript.TestScript, _ bool, args []string) {
	text := json.RawMessage(ts.ReadFile("stdout"))
	if head := keysInOrder(text); len(head) < 3 || head[0] != "apiVersion" || head[1] != "kind" {
		ts.Fatalf("what is printed begins with %v", head)
	}
	for step := range strings.SplitSeq(strings.Trim(args[0], "."), ".") {
		if step == "" {
			continue
		}
		if i, err := strconv.Atoi(step); err == nil {
			var list []json.RawMessage
			ts.Check(json.Unmarshal(text, &list))
			text = list[i]
			continue
		}
		var object map[string]json.RawMessage
		ts.Check(json.Unmarshal(text, &object))
		text = object[step]
	}
	got := keysInOrder(text)
	if args[0] == "." {
		got = got[2:]
	}
	if !slices.Equal(got, args[1:]) {
		ts.Fatalf("keys of %s are %v, want %v", args[0], got, args[1:])
	}
}

func keysInOrder(text []byte) []string {
	var keys []string
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err != nil || d.Decode(&value) != nil {
			return nil
		}
		keys = append(keys, fmt.Sprint(key))
	}
	return keys
}

// freePort sets an environment variable to a port of loopback that is free, and that nobody
// else is given.
func freePort(ts *testscript.TestScript, _ bool, args []string) {
	port, err := sandbox.FreePort()
	ts.Check(err)
	ts.Setenv(args[0], strconv.Itoa(port))
}

// waitFor runs a command until it succeeds, for at most a minute.
func waitFor(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%v fails: %v", args, err)
		}
	}
}

// hold connects to a gateway, whose metrics are at ADMIN, and keeps the connection open until
// the script ends, in the middle of a ClientHello: hold GATEWAY ADMIN.
func hold(ts *testscript.TestScript, _ bool, args []string) {
	conn, err := net.Dial("tcp", args[0])
	ts.Check(err)
	ts.Defer(func() { conn.Close() })
	_, err = conn.Write([]byte{22, 3, 1}) // a TLS handshake record begins (RFC 8446, 5.1)
	ts.Check(err)
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get("http://" + args[1] + "/metrics")
		ts.Check(err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		ts.Check(err)
		if strings.Contains(string(text), "isthmus_gateway_hellos_pending 1") {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("the gateway at %s has not accepted a connection", args[0])
		}
	}
}

// says waits until /readyz of a service says something, for at most a minute: says ADMIN TEXT.
func says(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get("http://" + args[0] + "/readyz")
		ts.Check(err)
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		ts.Check(err)
		if strings.Contains(string(text), args[1]) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("the service at %s says %q", args[0], text)
		}
	}
}

// each visits every command that users see.
func each(cmd *cobra.Command, visit func(*cobra.Command)) {
	for _, sub := range cmd.Commands() {
		if sub.Name() == "help" || sub.Hidden {
			continue
		}
		visit(sub)
		each(sub, visit)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	each(newRoot(), func(cmd *cobra.Command) {
		if cmd.Name() != "completion" && cmd.Parent().Name() != "completion" && cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	})
}

var flagInAPage = regexp.MustCompile(`(?:^|\s)(--?[a-z][a-z-]*)`)

// TestCommandsInThePages holds every command line of a page to what the program takes.
func TestCommandsInThePages(t *testing.T) {
	pages, err := page.All("../..")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for path, text := range pages {
		for _, s := range page.Snippets(text) {
			if s.Language != "console" && s.Language != "sh" {
				continue
			}
			for line := range strings.Lines(s.Text) {
				line, _, _ = strings.Cut(strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "$ ")), " #")
				words := strings.Fields(line)
				if len(words) < 2 || filepath.Base(words[0]) != "isthmus" || strings.HasPrefix(words[1], "-") {
					continue
				}
				cmd, _, err := newRoot().Find(words[1:])
				if err != nil || !cmd.HasParent() {
					t.Errorf("%s: %q is no command: %v", path, line, err)
					continue
				}
				cmd.InitDefaultHelpFlag()
				for _, match := range flagInAPage.FindAllStringSubmatch(line, -1) {
					long, isLong := strings.CutPrefix(match[1], "--")
					if isLong && cmd.Flag(long) == nil || !isLong && cmd.Flags().ShorthandLookup(match[1][1:2]) == nil && cmd.InheritedFlags().ShorthandLookup(match[1][1:2]) == nil {
						t.Errorf("%s: %q: %s knows no flag %s", path, line, cmd.CommandPath(), match[1])
					}
				}
				checked++
			}
		}
	}
	if checked == 0 {
		t.Error("the pages show no command")
	}
}

// TestEveryVariableIsInTheDocs looks for variables in the texts of all programs.
func TestEveryVariableIsInTheDocs(t *testing.T) {
	docs, err := os.ReadFile("../../docs/reference/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	variable := regexp.MustCompile(`"(ISTHMUS_[A-Z_]*[A-Z])"`)
	for _, dir := range []string{"cmd", "components", "tests/demo", "identity", "nameresolution", "resolver-service", "internal/settings", "configstore"} {
		err := filepath.WalkDir(filepath.Join("..", "..", dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range variable.FindAllStringSubmatch(string(text), -1) {
				name := m[1]
				if !strings.HasPrefix(name, "ISTHMUS_TEST_") && !strings.Contains(string(docs), "`"+name+"`") {
					t.Errorf("%s reads %s, and docs/reference/cli.md says nothing of it", path, name)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestACommandThatWritesWaitsLonger(t *testing.T) {
	for name, want := range map[string]time.Duration{"apply": time.Minute, "edit": time.Minute, "delete": time.Minute, "get": 10 * time.Second, "status": 10 * time.Second} {
		cmd, _, err := newRoot().Find([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := cmd.Flags().GetDuration("timeout"); got != want || err != nil {
			t.Errorf("%s waits for %s, %v; want %s", name, got, err, want)
		}
	}
}

func TestTheHelpListsCommandsInUse(t *testing.T) {
	var names []string
	each(newRoot(), func(cmd *cobra.Command) {
		if cmd.Parent().Name() == "isthmus" {
			names = append(names, cmd.Name())
		}
	})
	sort.Strings(names)
	for _, want := range []string{"apply", "delete", "explain", "get", "resolve", "serve", "status", "validate", "version"} {
		if !slices.Contains(names, want) {
			t.Errorf("no command %s among %v", want, names)
		}
	}
}
