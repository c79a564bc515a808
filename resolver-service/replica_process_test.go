package resolverservice

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// replicaVariable makes the test's binary be a replica, and names its configuration.
// rejoinVariable is how long it waits for sidecars that only they know of.
const (
	replicaVariable = "ISTHMUS_TEST_REPLICA"
	rejoinVariable  = "ISTHMUS_TEST_REJOIN_AFTER_OUTAGE"
)

// runReplica is a replica as "isthmus serve" runs it.
func runReplica(path string) (code int) {
	cfg, err := Load(path)
	if err == nil {
		if d, err := time.ParseDuration(os.Getenv(rejoinVariable)); err == nil {
			rejoinAfterOutage = d
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		cfg.source = anywhere
		err = Run(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// replicaProcess is one replica of a test, which can be ended and started again.
type replicaProcess struct {
	t                               *testing.T
	name, config                    string
	resolver, gateway, admin, debug string
	rejoinAfterOutage               string           // none: that of a real service
	ca                              *identitytest.CA // nil: plain text
	log                             *os.File
	cmd                             *exec.Cmd
}

func freeAddress(t *testing.T) string {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}

// newReplica configures one replica over an etcd.
func newReplica(t *testing.T, cluster, name, etcd, more string) *replicaProcess {
	t.Helper()
	dir := t.TempDir()
	p := &replicaProcess{t: t, name: name, config: filepath.Join(dir, "isthmus.yaml"), resolver: freeAddress(t), gateway: freeAddress(t), admin: freeAddress(t), debug: freeAddress(t)}
	text := fmt.Sprintf("cluster: %s\ndataDir: %s\nidentity: {insecure: true}\ndevelopment: {loopback: true}\nlog: {level: debug}\n"+
		"store: {etcd: {endpoints: ['%s'], prefix: %s/}}\ninstances: {etcd: {endpoints: ['%s'], ttl: 6s}}\nreplicas: {name: %s}\n"+
		"listen: {resolver: '%s', gateway: '%s', admin: '%s', debug: '%s'}\ngateway: {plaintext: true, drainTimeout: 1s}\n%s",
		cluster, dir, etcd, cluster, etcd, name, p.resolver, p.gateway, p.admin, p.debug, more)
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		if t.Failed() {
			text, _ := os.ReadFile(p.log.Name())
			t.Logf("the last that %s logged:\n%s", name, text[max(0, len(text)-3000):])
		}
		p.log.Close()
	})
	return p
}

// certify gives a replica that has not started a certificate in place of plain text.
func (p *replicaProcess) certify(cluster string, ca *identitytest.CA) {
	p.t.Helper()
	p.ca = ca
	f := ca.Config(identity.ServiceApp("", cluster)).Files
	text, err := os.ReadFile(p.config)
	if err == nil {
		files := fmt.Sprintf("{files: {cert: %s, key: %s, ca: %s}}", f.Cert, f.Key, f.CA)
		err = os.WriteFile(p.config, []byte(strings.Replace(string(text), "{insecure: true}", files, 1)), 0o600)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// credentials are those of an app that calls the replica.
func (p *replicaProcess) credentials(app catalog.App) credentials.TransportCredentials {
	p.t.Helper()
	if p.ca == nil {
		return insecure.NewCredentials()
	}
	source, err := identity.New(p.ca.Config(app), app, slog.New(slog.DiscardHandler))
	if err == nil {
		err = source.Load(p.t.Context())
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return source.ClientCredentials(identity.Anyone)
}

// start starts the replica and waits until it is ready.
func (p *replicaProcess) start() {
	p.t.Helper()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), replicaVariable+"="+p.config, rejoinVariable+"="+p.rejoinAfterOutage)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	serverstest.Await(p.t, p.name+" is ready", func() bool {
		code, _ := p.get("/readyz")
		return code == http.StatusOK
	})
}

// end sends a signal and waits for the end.
func (p *replicaProcess) end(sig syscall.Signal) {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(sig)
	_ = p.cmd.Wait()
	p.cmd = nil
}

func (p *replicaProcess) get(path string) (code int, body string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	address := p.admin
	if strings.HasPrefix(path, "/debug") {
		address = p.debug
	}
	resp, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// view is all that an app may resolve by a replica, but for the revision.
func (p *replicaProcess) view(app catalog.App) string {
	_, body := p.get("/debug/views?app=" + app.String())
	var page map[string]any
	if err := json.Unmarshal([]byte(body), &page); err != nil {
		return body
	}
	delete(page, "revision")
	text, _ := json.Marshal(page)
	return string(text)
}

func (p *replicaProcess) apply(yaml string) {
	p.t.Helper()
	objects, mistakes := api.DecodeYAML("test.yaml", []byte(yaml))
	if err := mistakes.Err(); err != nil {
		p.t.Fatal(err)
	}
	req := &v1alpha1.ApplyRequest{}
	for _, o := range objects {
		req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: api.EncodeJSON(o)})
	}
	conn, err := grpc.NewClient("passthrough:///"+p.resolver, grpc.WithTransportCredentials(p.credentials(identity.CLIApp(""))))
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := v1alpha1.NewObjectsClient(conn).Apply(p.t.Context(), req); err != nil {
		p.t.Fatal(err)
	}
}

// clientOf is a client of etcd itself.
func clientOf(t *testing.T, etcd *servers.Etcd) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{etcd.URL()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// awaitSettled waits until so many replicas, and no more, say that they know what runs.
func awaitSettled(t *testing.T, etcd *servers.Etcd, want int) {
	t.Helper()
	client := clientOf(t, etcd)
	serverstest.Await(t, "replicas have settled", func() bool {
		answer, err := client.Get(t.Context(), "isthmus-instances/v1/west/_replicas/", clientv3.WithPrefix())
		settled := 0
		if err == nil {
			for _, kv := range answer.Kvs {
				if strings.Contains(string(kv.Value), `"settled":true`) {
					settled++
				}
			}
		}
		return err == nil && settled == want
	})
}
