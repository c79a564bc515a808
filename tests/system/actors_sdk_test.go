package system

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// sdkApp starts an app by one of Dapr's SDKs with its sidecar. It hosts actors of a type, or calls some
// where that is empty.
func (m *actorMesh) sdkApp(t *testing.T, c *sandbox.Cluster, sdk, typ string) (at string) {
	t.Helper()
	command := sandbox.Command{Name: "app-" + c.Name + "-" + sdk + typ, LogDir: t.TempDir()}
	var err error
	switch sdk {
	case "go":
		command.Path, err = sandbox.Binary("sdk-go")
	case "js":
		command.Path, err = sandbox.Binary("node")
		command.Args = []string{"../sdks/app.js"}
	}
	if err != nil {
		t.Fatal(err)
	}
	modules, err := filepath.Abs("../../bin/dapr-js/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "@dapr")); err != nil {
		t.Fatalf("Dapr's SDK for JavaScript: %v; get it with: go run ./tests/sandbox/have sdk-go dapr-js", err)
	}
	var ports [3]int
	for i := range ports {
		if ports[i], err = sandbox.FreePort(); err != nil {
			t.Fatal(err)
		}
	}
	command.Env = []string{"NODE_PATH=" + modules, "TYPE=" + typ}
	for i, name := range []string{"PORT", "DAPR_HTTP_PORT", "DAPR_GRPC_PORT"} {
		command.Env = append(command.Env, fmt.Sprintf("%s=%d", name, ports[i]))
	}
	p, err := sandbox.Start(command)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", command.Name, p.Tail(25))
		}
	})
	at = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
	m.sidecar(t, c, sandbox.SidecarOptions{App: m.app(sdk + "-" + strings.ToLower(typ) + "app"), AppAddress: at, HTTPPort: ports[1], GRPCPort: ports[2]})
	return at
}

// TestActorsOfSDKs has apps by Dapr's SDKs host actors in east, and others call them from west, as they
// would within one cluster.
func TestActorsOfSDKs(t *testing.T) {
	t.Parallel()
	m := startActorMesh(t, false)
	sdks := []string{"go", "js"}
	selects := "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: %s-app}\nspec: {endpoints: [], actors: [{type: BasketOfgo}, {type: BasketOfjs}]}\n"
	for _, sdk := range sdks {
		m.apply(t, m.east, fmt.Sprintf("apiVersion: isthmus.dev/v1alpha1\nkind: ActorType\nmetadata: {namespace: shop, name: basket-of-%[1]s}\nspec: {type: BasketOf%[1]s, owner: east, allow: [{cluster: west}]}\n", sdk))
		m.apply(t, m.west, fmt.Sprintf(selects, sdk))
	}
	callers := map[string]string{}
	for _, sdk := range sdks {
		m.sdkApp(t, m.east, sdk, "BasketOf"+sdk)
		callers[sdk] = m.sdkApp(t, m.west, sdk, "")
	}
	callers["go in east"] = m.sdkApp(t, m.east, "go", "")
	call := func(by, typ, id, method, item string) (text string, err error) {
		query := url.Values{"type": {typ}, "id": {id}, "method": {method}, "item": {item}}
		req, err := http.NewRequestWithContext(meshtest.Within(t, meshtest.Patience), http.MethodGet, "http://"+callers[by]+"/?"+query.Encode(), nil)
		if err != nil {
			return "", err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err == nil && res.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", res.Status, body)
		}
		return string(body), err
	}
	t.Run("go calls js as it does within a cluster", func(t *testing.T) {
		// The SDK for Go names no content type, so that for JavaScript takes the arguments for bytes.
		meshtest.Eventually(t, meshtest.Patience, func() error {
			_, there := call("go in east", "BasketOfjs", "bytes", "Add", "pear")
			_, here := call("go", "BasketOfjs", "bytes", "Add", "pear")
			if want := "Answer.items of type string"; there == nil || here == nil || there.Error() != here.Error() || !strings.Contains(here.Error(), want) {
				return fmt.Errorf("from the owner cluster %v, from the other %v; want both with %q", there, here, want)
			}
			return nil
		})
	})
	for _, by := range sdks {
		for _, of := range sdks {
			if by == "go" && of == "js" {
				continue // see above
			}
			t.Run(by+" calls "+of, func(t *testing.T) {
				typ, id := "BasketOf"+of, "of-"+by
				add := func(item string) (n int, sdk string, err error) {
					text, err := call(by, typ, id, "Add", item)
					var a struct {
						SDK   string
						Items []string
					}
					if err == nil {
						err = json.Unmarshal([]byte(text), &a)
					}
					return len(a.Items), a.SDK, err
				}
				meshtest.Eventually(t, meshtest.Patience, func() error {
					_, err := call(by, typ, "another", "Add", "first")
					return err
				})
				if n, sdk, err := add("pear"); n != 1 || sdk != of || err != nil {
					t.Errorf("%d items by %q, %v; want one by %s", n, sdk, err, of)
				}
				var group sync.WaitGroup
				for i := range 20 {
					group.Go(func() {
						if _, _, err := add(fmt.Sprint("apple ", i)); err != nil {
							t.Error(err)
						}
					})
				}
				group.Wait()
				if n, _, err := add("plum"); n != 22 || err != nil {
					t.Errorf("%d items after 22 calls, %v: some ran at a time", n, err)
				}
				if text, err := call(by, typ, id, "Fail", "stones"); err == nil || !strings.Contains(err.Error(), "error from actor service: (500)") {
					t.Errorf("an error of the actor reads %q, %v", text, err)
				}
			})
		}
	}
}
