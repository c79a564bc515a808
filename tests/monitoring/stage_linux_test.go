package monitoring

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers"
)

func TestMain(m *testing.M) { os.Exit(meshtest.Leaks(m.Run())) }

// stage is clusters west and east, each with a root of its own, and two services of a cluster north
// that has no sidecars. One Prometheus scrapes all.
type stage struct {
	*sandbox.Sandbox
	t                *testing.T
	roots            map[string]*sandbox.Authority
	west, east       *sandbox.Cluster
	north            *sandbox.Service // with its objects and certificate in files
	northOld         *sandbox.Process // of another version, with its objects in etcd
	etcd             *servers.Etcd    // has the objects and the instances of east, too
	checkout, orders *sandbox.Sidecar
	prometheus       *servers.Prometheus
	northOldAdmin    string
	dns              string // address of west's
	files            string // objects of north
	certificate      string // directory
	northCA          *identitytest.CA
}

// needs are the programs that the stage runs.
func needs(t *testing.T) {
	t.Helper()
	programstest.World(t, "isthmus", "daprd", "sentry", "etcd", "prometheus", "promtool")
}

func newStage(t *testing.T) *stage {
	t.Helper()
	needs(t)
	s, err := sandbox.New(t.TempDir(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	must(t, err)
	st := &stage{Sandbox: s, t: t, roots: map[string]*sandbox.Authority{}}
	t.Cleanup(func() {
		if t.Failed() {
			for _, c := range []*sandbox.Cluster{st.west, st.east} {
				if c != nil {
					t.Logf("log of %s:\n%s", c.Name, c.Tail(15))
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	st.etcd, err = servers.StartEtcd(meshtest.Within(t, meshtest.Patience), st.dir("etcd"), servers.EtcdOptions{})
	must(t, err)
	t.Cleanup(func() { _ = servers.KillEtcd(st.etcd) })
	endpoints := map[string]any{"endpoints": []string{st.etcd.Addr()}}
	cluster := func(name string, o sandbox.ClusterOptions) *sandbox.Cluster {
		st.roots[name], err = sandbox.NewAuthority()
		must(t, err)
		o.Name, o.Authority, o.TrustDomain = name, st.roots[name], name+".example"
		c, err := s.Cluster(meshtest.Within(t, meshtest.Patience), o)
		must(t, err)
		return c
	}
	dns, err := sandbox.FreePort()
	must(t, err)
	st.dns = fmt.Sprint("127.0.0.1:", dns)
	st.west = cluster("west", sandbox.ClusterOptions{Listen: map[string]any{"dns": st.dns}, Settings: map[string]any{
		"defaultSelection": "none", "guard": "enforce",
	}})
	st.east = cluster("east", sandbox.ClusterOptions{Store: map[string]any{"etcd": endpoints}, Settings: map[string]any{
		"instances": map[string]any{"etcd": endpoints}, "replicas": map[string]any{"name": "east-0"},
		"gateway": map[string]any{"maxConnections": 20, "maxPerSource": 20, "answerTimeout": "1s"},
	}})
	st.startNorth(endpoints)
	st.link()
	st.checkout, st.orders = st.app(st.west, "checkout", "west", "east"), st.app(st.east, "orders", "west", "east")
	st.startPrometheus()
	return st
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (st *stage) dir(name string) string {
	dir := filepath.Join(st.Dir(), name)
	must(st.t, os.MkdirAll(dir, 0o755))
	return dir
}

// startNorth starts a service with a certificate that a test may replace.
func (st *stage) startNorth(endpoints map[string]any) {
	st.northCA = identitytest.NewCA(st.t, identitytest.LongLived)
	st.files, st.certificate = st.dir("north-objects"), st.dir("north-certificate")
	st.certify(90 * 24 * time.Hour)
	identity := map[string]any{"files": map[string]any{
		"cert": filepath.Join(st.certificate, "cert.pem"), "key": filepath.Join(st.certificate, "key.pem"), "ca": filepath.Join(st.certificate, "ca.pem"),
	}}
	var err error
	st.north, err = st.Service(meshtest.Within(st.t, meshtest.Patience), sandbox.ServiceOptions{
		Cluster: "north", Store: map[string]any{"file": map[string]any{"path": st.files}}, Settings: map[string]any{"identity": identity},
	})
	must(st.t, err)
	old, err := st.NewService(sandbox.ServiceOptions{Name: "isthmus-north-old", Cluster: "north", Store: map[string]any{"etcd": map[string]any{"endpoints": endpoints["endpoints"], "prefix": "north/"}}, Settings: map[string]any{"identity": identity}})
	must(st.t, err)
	binary := filepath.Join(st.dir("bin"), "isthmus-old")
	args := append([]string{"build"}, strings.Fields(os.Getenv("SMALL"))...) // as make build does, which has compiled most of it
	args = append(args, "-ldflags", "-s -w -X main.version=v0.9.0", "-o", binary, "../../cmd/isthmus")
	out, err := exec.CommandContext(st.t.Context(), "go", args...).CombinedOutput()
	if err != nil {
		st.t.Fatalf("%v\n%s", err, out)
	}
	st.northOld, err = sandbox.Start(sandbox.Command{Name: "isthmus-north-old", Path: binary, Args: []string{"serve", "-c", old.Config}, LogDir: st.Dir(), ReadyURL: "http://" + old.Admin + "/readyz"})
	must(st.t, err)
	st.t.Cleanup(func() { _ = st.northOld.Kill() })
	must(st.t, st.northOld.WaitReady(meshtest.Within(st.t, meshtest.Patience)))
	must(st.t, st.northOld.Stop(meshtest.Within(st.t, meshtest.Patience)))
	st.northOldAdmin = old.Admin
}

// certify gives north a certificate of a life.
func (st *stage) certify(life time.Duration) {
	pair := st.northCA.Issue(catalog.App{Namespace: "isthmus-system", ID: "isthmus-north"}, lasting(life))
	for name, text := range map[string][]byte{"key.pem": pair.Key, "cert.pem": pair.Cert, "ca.pem": st.northCA.PEM()} {
		identitytest.Write(st.t, filepath.Join(st.certificate, name), text)
	}
}

// link has west and east know each other by their roots, and exports orders.
func (st *stage) link() {
	st.apply(st.west, st.knows(st.east, st.east.Gateway))
	st.apply(st.east, st.knows(st.west, st.west.Gateway))
	st.apply(st.east, meshtest.Export("shop", "orders", "west"))
	st.apply(st.west, meshtest.Selection("shop", "checkout", "app: orders"))
}

// knows is a Cluster object with the cluster's root, and a way to it.
func (st *stage) knows(c *sandbox.Cluster, gateway string) string {
	return meshtest.ClusterThatLapses(2*time.Second, c.Name, gateway) + "  trust:\n    domain: " + c.Name + ".example\n    roots: |\n      " +
		strings.ReplaceAll(strings.TrimSpace(string(st.roots[c.Name].Anchors())), "\n", "\n      ") + "\n"
}

// app is a sidecar that trusts the roots of these clusters.
func (st *stage) app(c *sandbox.Cluster, id string, anchors ...string) *sandbox.Sidecar {
	st.t.Helper()
	var text bytes.Buffer
	for _, name := range anchors {
		text.Write(st.roots[name].Anchors())
	}
	s, err := c.Sidecar(meshtest.Within(st.t, meshtest.Patience), sandbox.SidecarOptions{
		App: catalog.App{Namespace: "shop", ID: id}, Guard: true, Env: map[string]string{"DAPR_TRUST_ANCHORS": text.String()},
	})
	must(st.t, err)
	return s
}

// plainApp is a sidecar that is registered as others are, and whose calls are not encrypted.
func (st *stage) plainApp(c *sandbox.Cluster, id string) *sandbox.Daprd {
	st.t.Helper()
	app := catalog.App{Namespace: "shop", ID: id}
	configuration, err := c.Configuration(sandbox.SidecarOptions{App: app})
	must(st.t, err)
	d, err := st.Daprd(meshtest.Within(st.t, meshtest.Patience), sandbox.DaprdOptions{Name: "daprd-plain", Cluster: c.Name, App: app, AppAddress: st.checkout.Behind.Address, AppProtocol: "http", Configuration: configuration})
	must(st.t, err)
	return d
}

// isthmus runs the command line against a cluster.
func (st *stage) isthmus(c *sandbox.Cluster, stdin string, args ...string) error {
	binary := programstest.Path(st.t, "isthmus")
	cmd := exec.CommandContext(meshtest.Within(st.t, meshtest.Patience), binary, args...)
	cmd.Env, cmd.Stdin = append(os.Environ(), c.CommandLine()...), strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("isthmus %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func (st *stage) apply(c *sandbox.Cluster, objects string) {
	st.t.Helper()
	must(st.t, st.isthmus(c, objects, "apply", "-f", "-"))
}

func (st *stage) remove(c *sandbox.Cluster, kind, name string) {
	st.t.Helper()
	must(st.t, st.isthmus(c, "", "delete", kind, name))
}

// quick shortens the durations of the rules, so that nothing takes minutes.
func quick(text string) string {
	for _, r := range [][2]string{
		{`for: \d+[mh]`, "for: 1s"}, {`\[30m\]`, "[1m]"}, {`\[(5|10)m\]`, "[8s]"}, {`> 60\b`, "> 3"}, {`\)\)\) > 4\b`, "))) > 1"},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

func (st *stage) startPrometheus() {
	dir := st.dir("prometheus")
	must(st.t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(quick(rulesText(st.t))), 0o600))
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yaml]\nscrape_configs:\n- job_name: isthmus\n  static_configs:\n")
	target := func(address, cluster string) {
		fmt.Fprintf(&config, "  - {targets: ['%s'], labels: {isthmus_cluster: %s}}\n", address, cluster)
	}
	target(st.west.Admin, "west")
	target(st.east.Admin, "east")
	target(st.north.Admin, "north")
	target(st.northOldAdmin, "north")
	config.WriteString("- job_name: daprd\n  static_configs:\n")
	target(st.checkout.Metrics, "west")
	target(st.orders.Metrics, "east")
	var err error
	st.prometheus, err = servers.StartPrometheus(meshtest.Within(st.t, meshtest.Patience), dir, config.String())
	must(st.t, err)
	st.t.Cleanup(func() { _ = st.prometheus.Stop(meshtest.Within(st.t, meshtest.Patience)) })
}

// firing are the alerts that fire now.
func (st *stage) firing() (map[string]servers.Alert, error) {
	all, err := st.prometheus.Alerts(st.t.Context())
	found := map[string]servers.Alert{}
	for _, a := range all {
		if a.State == "firing" {
			found[a.Labels["alertname"]] = a
		}
	}
	return found, err
}

// helloTo is what a client sends first that asks for a server name.
func helloTo(name string) []byte {
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		_ = tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake() // it is cut off
		client.Close()
	}()
	buf := make([]byte, 4096)
	n, _ := server.Read(buf)
	return buf[:n]
}

// knock connects to a gateway and asks for an app of its cluster, and no more.
func knock(at *sandbox.Cluster, app string) (net.Conn, error) {
	conn, err := net.Dial("tcp", at.Gateway)
	if err != nil {
		return nil, err
	}
	if _, err = conn.Write(helloTo(app + ".shop." + at.Name + ".isthmus.internal")); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// middleBox lets connections of resolver services through to a gateway, and resets all others, until
// the test ends.
func (st *stage) middleBox(to string) (address string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(st.t, err)
	st.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go pass(in, to)
		}
	}()
	return l.Addr().String()
}

func pass(in net.Conn, to string) {
	defer in.Close()
	first := make([]byte, 4096)
	n, _ := in.Read(first)
	if !bytes.Contains(first[:n], []byte("_resolver.")) {
		_ = in.(*net.TCPConn).SetLinger(0) // a reset
		return
	}
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	if _, err := out.Write(first[:n]); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(in, out)
		in.Close()
	}()
	_, _ = io.Copy(out, in)
}

// query asks west's DNS for orders; any answer will do.
func (st *stage) query() {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", st.dns)
	}}
	_, _ = r.LookupHost(meshtest.Within(st.t, meshtest.Attempt), "orders.shop.isthmus.internal.")
}

// scraped is the text that Prometheus would get from an address now.
func scraped(t *testing.T, address string) string {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return string(body)
}
