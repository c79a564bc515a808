package conformance

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
	"github.com/dapr/components-contrib/nameresolution/hashicorp/consul"
	"github.com/dapr/components-contrib/nameresolution/kubernetes"
	"github.com/dapr/components-contrib/nameresolution/mdns"
	"github.com/dapr/components-contrib/nameresolution/nameformat"
	"github.com/dapr/components-contrib/nameresolution/sqlite"
	"github.com/dapr/kit/logger"

	"github.com/isthmus-mesh/isthmus/components/daprd/upstream/isthmus"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// tested is a resolver that the table has a column for.
type tested struct {
	name  string
	new   func(logger.Logger) nr.Resolver
	setup func() Setup
}

var resolvers = []tested{
	{"kubernetes", kubernetes.NewResolver, func() Setup { return inKubernetes(nil, map[string]any{"template": "{{"}) }},
	{"nameformat", nameformat.NewResolver, func() Setup {
		return inKubernetes(map[string]any{"format": fmt.Sprintf("{appid}-dapr.shop.svc.cluster.local:%d", port)}, map[string]any{"format": "no placeholder"})
	}},
	{"consul", consul.NewResolver, func() Setup { return withConsul(false) }},
	{"consul, useCache", consul.NewResolver, func() Setup { return withConsul(true) }},
	{"mdns", mdns.NewResolver, func() Setup { return Setup{Within: 2 * time.Minute} }}, // it trusts an address for 60 s, and looks again each 30 s
	{"sqlite", sqlite.NewResolver, withSQLite},
	{"isthmus", newDialed, func() Setup {
		setup := withIsthmus(func(resolver string) any {
			return map[string]any{"resolver": resolver, "cluster": "west", "identity": map[string]any{"insecure": true}}
		})
		setup.Serve, setup.Endpoints = serveCalls, dialedEndpoints
		return setup
	}},
	{"isthmus, upstream", isthmus.NewResolver, func() Setup {
		return withIsthmus(func(resolver string) any {
			return map[string]any{"resolver": resolver, "cluster": "west", "insecure": true}
		})
	}},
}

// quietLogger logs nothing, since the checks make mistakes by the dozen.
func quietLogger() logger.Logger {
	l := logger.NewLogger("conformance")
	l.SetOutputLevel(logger.FatalLevel)
	return l
}

// inKubernetes has an API server with services and endpoints, and a CoreDNS that answers their names.
func inKubernetes(configuration any, invalid any) Setup {
	k := &serverstest.Kubernetes{}
	kubectl := func(t *testing.T, object any, args ...string) {
		t.Helper()
		text, err := json.Marshal(object)
		if err == nil {
			_, err = k.Run(string(text), append(args, "-f", "-")...)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type object = map[string]any
	head := func(api, kind, namespace, name string, labels object) object {
		return object{"apiVersion": api, "kind": kind, "metadata": object{"namespace": namespace, "name": name, "labels": labels}}
	}
	return Setup{
		Invalid: map[string]any{"a mistake": invalid},
		IP:      func(n int) string { return fmt.Sprintf("10.20.%d.%d", n/250, 1+n%250) },
		IPv6:    "fd00::20",
		Start: func(t *testing.T) any {
			k.Need(t, func() error {
				return errors.Join(k.Kubectl("create", "namespace", "shop"), k.Kubectl("create", "namespace", "finance"))
			})
			t.Cleanup(k.End)
			dns := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), freePort(t))
			serverstest.Start(t, servers.StartCoreDNS, servers.CoreDNSOptions{Listen: dns, Corefile: fmt.Sprintf(`.:%d {
	bind %s
	kubernetes cluster.local {
		kubeconfig %s
	}
}
`, dns.Port(), dns.Addr(), k.AdminConfig())})
			stock := net.DefaultResolver
			net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, dns.String())
			}}
			t.Cleanup(func() { net.DefaultResolver = stock })
			return configuration
		},
		// As Dapr's operator and the controllers of Kubernetes do for a pod with a sidecar.
		Register: func(t *testing.T, i nr.Instance) (remove func()) {
			t.Helper()
			service := i.AppID + "-dapr"
			port := object{"name": "dapr-internal", "port": i.DaprInternalPort, "protocol": "TCP"}
			s := head("v1", "Service", i.Namespace, service, nil)
			s["spec"] = object{"clusterIP": "None", "ports": []any{port}}
			kubectl(t, s, "apply")
			name, family := service+"-"+strings.NewReplacer(".", "-", ":", "-").Replace(i.Address), "IPv4"
			if strings.Contains(i.Address, ":") {
				family = "IPv6"
			}
			slice := head("discovery.k8s.io/v1", "EndpointSlice", i.Namespace, name, object{"kubernetes.io/service-name": service})
			slice["addressType"], slice["ports"] = family, []any{port}
			slice["endpoints"] = []any{object{"addresses": []any{i.Address}, "conditions": object{"ready": true}}}
			kubectl(t, slice, "apply")
			return func() { kubectl(t, slice, "delete") }
		},
	}
}

func freePort(t *testing.T) uint16 {
	t.Helper()
	port, err := sandbox.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return uint16(port)
}

func withConsul(cache bool) Setup {
	var server *servers.Consul
	return Setup{
		Invalid: map[string]any{"a text": "127.0.0.1:8500", "a client that is none": map[string]any{"client": "127.0.0.1:8500"}},
		Within:  40 * time.Second, // it learns of a sidecar's health every 15 s
		Start: func(t *testing.T) any {
			server = serverstest.Start(t, servers.StartConsul, servers.ConsulOptions{})
			return map[string]any{
				"client": map[string]any{"address": server.Plain()}, "selfRegister": true, "selfDeregister": true, "useCache": cache,
			}
		},
		Pause: func(t *testing.T) (resume func()) { return pause(t, server.PID()) },
	}
}

// pause stops a process until resume.
func pause(t *testing.T, pid int) (resume func()) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid)) // none outside Linux
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range threads {
		eventually(t, time.Minute, func() bool {
			text, err := os.ReadFile(stat)
			return err != nil || strings.Contains(string(text), ") T ")
		}, func() string { return stat + " still runs" })
	}
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
}

func withSQLite() Setup {
	var file string
	return Setup{
		Invalid: map[string]any{
			"no connection string": map[string]any{},
			"a table's name":       map[string]any{"connectionString": "x.db", "tableName": "no such; table"},
		},
		Start: func(t *testing.T) any {
			file = filepath.Join(t.TempDir(), "names.db")
			return map[string]any{"connectionString": file}
		},
		Pause: func(t *testing.T) (resume func()) { // another process that holds the database
			db, err := sql.Open("sqlite", "file:"+file)
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(1)
			for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
				if _, err = db.Exec("BEGIN EXCLUSIVE"); err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatal(err)
				}
			}
			return func() { _ = db.Close() }
		},
	}
}

// withIsthmus has a resolver service, whose address the configuration names.
func withIsthmus(configuration func(resolver string) any) Setup {
	var service *sandbox.Service
	return Setup{
		Invalid: map[string]any{
			"nothing":      nil,
			"an empty one": map[string]any{},
			"no cluster":   map[string]any{"resolver": "127.0.0.1:7400"},
		},
		Start: func(t *testing.T) any {
			s, err := sandbox.New(t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			service, err = s.Service(t.Context(), sandbox.ServiceOptions{Cluster: "west", Gateway: sandbox.NoGateway})
			programstest.OrSkip(t, err)
			return configuration(service.Resolver)
		},
		Pause: func(t *testing.T) (resume func()) { return pause(t, service.PID()) },
	}
}
