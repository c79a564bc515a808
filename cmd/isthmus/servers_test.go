package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// managementToken is that of the Consul of a script: it may do everything.
const managementToken = "11111111-2222-3333-4444-555555555555"

// started is a server of a script.
type started interface {
	Addr() string
	Kill() error
	Start(context.Context) error
}

// serverKinds are the servers that a script can have, and the binaries that they need.
var serverKinds = map[string]struct {
	binary string
	start  func(ctx context.Context, dir string) (started, error)
}{
	"consul": {"consul", func(ctx context.Context, dir string) (started, error) {
		cert, key, err := serverCertificate(dir)
		if err != nil {
			return nil, err
		}
		return server(servers.StartConsul(ctx, dir, servers.ConsulOptions{Management: managementToken, Cert: cert, Key: key}))
	}},
	"etcd": {"etcd", func(ctx context.Context, dir string) (started, error) {
		return server(servers.StartEtcd(ctx, dir, servers.EtcdOptions{}))
	}},
	"kubernetes": {"kube-apiserver", startKubernetes},
	"redis": {"redis-server", func(ctx context.Context, dir string) (started, error) {
		return server(servers.StartRedis(ctx, dir, servers.RedisOptions{Config: []string{"requirepass hunter2", "notify-keyspace-events Kg$"}}))
	}},
}

// kubernetesServer is an API server with the etcd that it needs. Beside its files is
// admin.kubeconfig, by which one may do everything.
type kubernetesServer struct {
	*servers.Kubernetes
	etcd *servers.Etcd
}

func startKubernetes(ctx context.Context, dir string) (started, error) {
	etcd, err := servers.StartEtcd(ctx, dir, servers.EtcdOptions{})
	if err != nil {
		return nil, err
	}
	const token = "token-of-admin"
	api, err := servers.StartKubernetes(ctx, dir, servers.KubernetesOptions{
		Etcd: etcd.URL(), Users: []servers.KubernetesUser{{Name: "admin", Token: token, Groups: []string{"system:masters"}}},
	})
	if err != nil {
		return nil, errors.Join(err, etcd.Kill())
	}
	k := kubernetesServer{api, etcd}
	if err := servers.Kubeconfig(filepath.Join(dir, "admin.kubeconfig"), api.Addr(), api.CA(), token); err != nil {
		return nil, errors.Join(err, k.Kill())
	}
	return k, nil
}

// Kill ends both.
func (k kubernetesServer) Kill() error { return errors.Join(k.Kubernetes.Kill(), k.etcd.Kill()) }

// kubectl runs kubectl as the administrator of the script's Kubernetes.
func kubectl(ts *testscript.TestScript, _ bool, args []string) {
	binary, err := sandbox.Binary("kubectl")
	ts.Check(err)
	ts.Check(ts.Exec(binary, append([]string{"--kubeconfig", ts.MkAbs("kubernetes.server/admin.kubeconfig")}, args...)...))
}

func server[S started](s S, err error) (started, error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// serverCertificate writes a certificate for loopback, and the root that it chains to as
// ca.pem beside it.
func serverCertificate(dir string) (certFile, keyFile string, err error) {
	authority, err := sandbox.NewAuthority()
	if err != nil {
		return "", "", err
	}
	cert, key, err := authority.Server("127.0.0.1")
	if err != nil {
		return "", "", err
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, text := range map[string][]byte{certFile: cert, keyFile: key, filepath.Join(dir, "ca.pem"): authority.Anchors()} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", "", err
		}
	}
	return certFile, keyFile, nil
}

// hasServer is the condition of a script that needs a server: [consul]. It always holds but
// in a short run, so that a script that can't run fails.
func hasServer(condition string) (bool, error) {
	kind, ok := serverKinds[condition]
	if !ok {
		return false, fmt.Errorf("unknown condition %s", condition)
	}
	return programstest.Runs(kind.binary), nil
}

// runServer starts a real server until the script ends, in a directory of its name, and
// sets NAME_ADDR and, for one with a port in the clear beside that with TLS, NAME_PLAIN:
// server consul. With "kill" or "again" it ends one, and starts it again.
func runServer(ts *testscript.TestScript, _ bool, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	name, servers := args[0], ts.Value(serversKey{}).(map[string]started)
	if len(args) == 2 {
		switch args[1] {
		case "kill":
			ts.Check(servers[name].Kill())
		case "again":
			ts.Check(servers[name].Start(ctx))
		}
		return
	}
	dir := ts.MkAbs(name + ".server")
	ts.Check(os.MkdirAll(dir, 0o700))
	s, err := serverKinds[name].start(ctx, dir)
	ts.Check(err)
	ts.Defer(func() { _ = s.Kill() })
	servers[name] = s
	ts.Setenv(strings.ToUpper(name)+"_ADDR", s.Addr())
	if plain, ok := s.(interface{ Plain() string }); ok {
		ts.Setenv(strings.ToUpper(name)+"_PLAIN", plain.Plain())
	}
}

// serversKey is where the servers of a script are among its values, by name.
type serversKey struct{}

// fill puts environment variables into files that have $NAME in them.
func fill(ts *testscript.TestScript, _ bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}
