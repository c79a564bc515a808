package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"github.com/jackc/pgx/v5"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

// server is what keeps a cluster's objects, or its instances.
type server interface {
	Kill() error
	Start(context.Context) error
	PID() int
}

// stores are those that a cluster can have, and whether several replicas may share one.
var stores = map[string]struct {
	shared bool
	start  func(context.Context, *cluster) (store map[string]any, by server, err error)
}{
	"embedded":   {false, func(context.Context, *cluster) (map[string]any, server, error) { return nil, nil, nil }},
	"file":       {false, inFiles},
	"etcd":       {true, func(_ context.Context, c *cluster) (map[string]any, server, error) { return c.inEtcd(), nil, nil }},
	"consul":     {true, inConsul},
	"redis":      {true, inRedis},
	"postgres":   {true, inPostgres},
	"kubernetes": {true, inKubernetes},
}

func inFiles(_ context.Context, c *cluster) (map[string]any, server, error) {
	dir := filepath.Join(c.box.Dir(), "objects")
	return map[string]any{"file": map[string]any{"path": dir}}, nil, os.Mkdir(dir, 0o755)
}

func inConsul(ctx context.Context, c *cluster) (map[string]any, server, error) {
	s, err := servers.StartConsul(ctx, c.box.Dir(), servers.ConsulOptions{Place: c.place})
	if err != nil {
		return nil, nil, err
	}
	return map[string]any{"consul": map[string]any{"address": s.URL()}}, s, nil
}

func inRedis(ctx context.Context, c *cluster) (map[string]any, server, error) {
	s, err := servers.StartRedis(ctx, c.box.Dir(), servers.RedisOptions{Place: c.place, Config: []string{"notify-keyspace-events Kg$"}})
	if err != nil {
		return nil, nil, err
	}
	store, err := c.component("redis", "{name: redisHost, value: %q}", s.Addr())
	return store, s, err
}

// inDocs is the SQL by which docs/reference/stores/dapr.md makes the table.
var inDocs = regexp.MustCompile("(?s)```sql\n(CREATE TABLE configtable .*?)```")

func inPostgres(ctx context.Context, c *cluster) (map[string]any, server, error) {
	s, err := servers.StartPostgres(ctx, c.box.Dir(), servers.PostgresOptions{Place: c.place})
	if err != nil {
		return nil, nil, err
	}
	page, err := os.ReadFile("../../docs/reference/stores/dapr.md")
	if err != nil {
		return nil, s, err
	}
	config, err := pgx.ParseConfig(s.URL("postgres"))
	if err != nil {
		return nil, s, err
	}
	config.DialFunc = c.place.Dial
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, s, err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, string(inDocs.FindSubmatch(page)[1])); err != nil {
		return nil, s, err
	}
	store, err := c.component("postgresql", "{name: connectionString, value: %q}, {name: table, value: configtable}, {name: notifyChannel, value: config}", s.URL("postgres"))
	return store, s, err
}

// component is a store in one of Dapr's configuration stores.
func (c *cluster) component(of, metadata string, args ...any) (map[string]any, error) {
	path := filepath.Join(c.box.Dir(), of+".yaml")
	text := fmt.Sprintf("apiVersion: dapr.io/v1alpha1\nkind: Component\nmetadata: {name: config}\nspec: {type: configuration.%s, version: v1, metadata: [%s]}\n",
		of, fmt.Sprintf(metadata, args...))
	return map[string]any{"dapr": map[string]any{"component": path}}, os.WriteFile(path, []byte(text), 0o600)
}

// inKubernetes has an API server beside the cluster's etcd, with our definitions and the namespace of the apps.
func inKubernetes(ctx context.Context, c *cluster) (map[string]any, server, error) {
	dir := filepath.Join(c.box.Dir(), "kubernetes")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, nil, err
	}
	s, err := servers.StartKubernetes(ctx, dir, servers.KubernetesOptions{
		Etcd: c.etcd.URL(), Place: c.place, Users: []servers.KubernetesUser{{Name: "admin", Token: "admin", Groups: []string{"system:masters"}}},
	})
	if err != nil {
		return nil, nil, err
	}
	config := filepath.Join(dir, "kubeconfig")
	if err := servers.Kubeconfig(config, s.Addr(), s.CA(), "admin"); err != nil {
		return nil, s, err
	}
	binary, err := sandbox.Binary("kubectl")
	if err != nil {
		return nil, s, err
	}
	for _, args := range [][]string{{"apply", "-f", "../../deploy/kubernetes/crds.yaml"}, {"create", "namespace", namespace}, {"wait", "--for=condition=Established", "crd", "--all"}} {
		if _, err := c.output(exec.CommandContext(ctx, binary, append([]string{"--kubeconfig", config}, args...)...)); err != nil {
			return nil, s, err
		}
	}
	return map[string]any{"kubernetes": map[string]any{"kubeconfig": config}}, s, nil
}
