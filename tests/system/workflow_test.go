package system

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	placementv1 "github.com/isthmus-mesh/isthmus/api/dapr/proto/placement/v1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// workflows is two clusters with all that Dapr needs for workflows. The app checkout in west has some,
// and payments in east has an activity.
type workflows struct {
	*mesh
	at               string           // where checkout's app listens
	app              *sandbox.Process // with checkout's workflows
	checkout, inEast *sandbox.Sidecar
	placement        *sandbox.Placement // of east
	payments         payments
}

// workflowState keeps the state of workflows over the end of a sidecar.
const workflowState = `apiVersion: dapr.io/v1alpha1
kind: Component
metadata: {name: state}
spec:
  type: state.sqlite
  version: v1
  metadata:
  - {name: connectionString, value: %q}
  - {name: actorStateStore, value: "true"}
`

func startWorkflows(t *testing.T) *workflows {
	t.Helper()
	programstest.Need(t, "placement", "scheduler", "sdk-workflow")
	w := &workflows{mesh: ownMesh(t, meshOptions{})}
	var err error
	for _, c := range []*sandbox.Cluster{w.west, w.east} {
		ctx := meshtest.Within(t, meshtest.Patience)
		if w.placement, err = c.Placement(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Scheduler(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.apply(t, w.west, selection("shop", "checkout", "app: payments"))
	w.apply(t, w.east, export("shop", "payments", "west"))
	w.inEast, _, _ = w.start(t, w.east, "payments", w.payments.start(t))
	w.checkout, w.app, w.at = w.start(t, w.west, "checkout", "")
	return w
}

// start starts an app with workflows and its sidecar. Calls of other apps go to the address, or to the
// program with the workflows where that is empty.
func (w *workflows) start(t *testing.T, c *sandbox.Cluster, id, address string) (s *sandbox.Sidecar, p *sandbox.Process, at string) {
	t.Helper()
	binary, err := sandbox.Binary("sdk-workflow")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	state := fmt.Sprintf(workflowState, filepath.Join(t.TempDir(), "state.db"))
	if err := os.WriteFile(filepath.Join(dir, "state.yaml"), []byte(state), 0o600); err != nil {
		t.Fatal(err)
	}
	command, ports := sandbox.Command{Name: "app-" + id, Path: binary, LogDir: t.TempDir()}, [3]int{}
	for i, name := range []string{"PORT", "DAPR_HTTP_PORT", "DAPR_GRPC_PORT"} {
		if ports[i], err = sandbox.FreePort(); err != nil {
			t.Fatal(err)
		}
		command.Env = append(command.Env, fmt.Sprintf("%s=%d", name, ports[i]))
	}
	if p, err = sandbox.Start(command); err != nil {
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
	s = w.sidecar(t, c, sandbox.SidecarOptions{App: catalog.App{Namespace: "shop", ID: id}, AppAddress: cmp.Or(address, at),
		HTTPPort: ports[1], GRPCPort: ports[2], Args: []string{"--resources-path", dir}})
	return s, p, at
}

// begin schedules a workflow of checkout.
func (w *workflows) begin(t *testing.T, name, id string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		res, err := http.Post("http://"+w.at+"/workflows/"+name+"/"+id, "", nil)
		if err != nil {
			return err
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer res.Body.Close()
		if body, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusOK {
			return fmt.Errorf("scheduling %s: %s %s", name, res.Status, body)
		}
		return nil
	})
}

// state is that of a workflow, such as RUNNING.
func (w *workflows) state(t *testing.T, id string) (string, error) {
	t.Helper()
	got, err := get(meshtest.Within(t, meshtest.Attempt), "http://"+w.at+"/workflows/"+id, nil)
	return strings.TrimPrefix(got, "200 "), err
}

// payments is an app that takes money once for a key, however often it is asked.
type payments struct {
	mu           sync.Mutex
	keys         map[string]int
	taken, asked int
}

func (p *payments) start(t *testing.T) string {
	t.Helper()
	p.keys = map[string]int{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if r.URL.Path != "/charge" || key == "" {
			return
		}
		p.mu.Lock()
		p.asked++
		if p.keys[key]++; p.keys[key] == 1 {
			p.taken++
		}
		p.mu.Unlock()
		time.Sleep(50 * time.Millisecond) // so that a process is killed in the middle of a call
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }() // it is closed below
	t.Cleanup(func() { server.Close(); <-done })
	return listener.Addr().String()
}

// TestAWorkflowCallsAnotherCluster has a workflow's activities call an app of the other cluster, while
// each process on the way is killed.
func TestAWorkflowCallsAnotherCluster(t *testing.T) {
	t.Parallel()
	const steps = 20 // of the workflow
	w := startWorkflows(t)
	w.begin(t, "invoking", "order")
	for i, p := range []*sandbox.Process{w.inEast.Process, w.app, w.checkout.Process} {
		meshtest.Eventually(t, meshtest.Patience, func() error {
			w.payments.mu.Lock()
			defer w.payments.mu.Unlock()
			if at := 4 * (i + 1); w.payments.taken < at {
				return fmt.Errorf("%d payments by %d calls; want %d", w.payments.taken, w.payments.asked, at)
			}
			return nil
		})
		if err := errors.Join(p.Kill(), p.Start()); err != nil {
			t.Fatal(err)
		}
	}
	meshtest.Eventually(t, 2*meshtest.Patience, func() error {
		state, err := w.state(t, "order")
		if err == nil && state != "COMPLETED" {
			err = fmt.Errorf("the workflow is %s", state)
		}
		return err
	})
	w.payments.mu.Lock()
	defer w.payments.mu.Unlock()
	for i := range steps {
		if key := fmt.Sprint("order-", i); w.payments.keys[key] == 0 {
			t.Errorf("the activity with %s is lost", key)
		}
	}
	if w.payments.taken != steps {
		t.Errorf("%d payments, want %d", w.payments.taken, steps)
	}
	t.Logf("%d payments by %d calls, with three processes killed", w.payments.taken, w.payments.asked)
}

// buildWorkflows is what a daprd asks for that does what Dapr 1.18 does not.
const buildWorkflows = "this is a newer Dapr: read docs/explanation/actors.md again, and build workflows across clusters if the rest no longer stands in their way"

// TestWorkflowsStayInTheirCluster pins what stands in the way of workflows across clusters.
func TestWorkflowsStayInTheirCluster(t *testing.T) {
	t.Parallel()
	w := startWorkflows(t)
	const activities = "dapr.internal.shop.payments.activity"
	meshtest.Eventually(t, meshtest.Patience, func() error { // in east everything is there
		got, err := get(meshtest.Within(t, meshtest.Attempt), w.placement.State, nil)
		if err == nil && !strings.Contains(got, activities) {
			err = fmt.Errorf("east's placement has no host of %s: %s", activities, got)
		}
		return err
	})
	w.begin(t, "remote", "far")
	meshtest.Eventually(t, meshtest.Patience, func() error {
		if tail := w.checkout.Tail(200); !containsLine(tail, "did not find address for actor", activities) {
			return fmt.Errorf("the sidecar of checkout does not miss the host of the activity; if the workflow ends, %s:\n%s", buildWorkflows, tail)
		}
		return nil
	})
	if state, err := w.state(t, "far"); err != nil || state != "RUNNING" && state != "PENDING" {
		t.Errorf("the workflow is %s, %v; %s", state, err, buildWorkflows)
	}
	for entities, want := range map[string]codes.Code{"Cart": codes.OK, activities: codes.PermissionDenied} {
		if err := w.hosts(t, catalog.BridgeApp("shop", "east"), entities); status.Code(err) != want {
			t.Errorf("a bridge says to placement that it hosts %s: %v; want %s; %s", entities, err, want, buildWorkflows)
		}
	}
}

// hosts says to east's placement service, as a bridge's certificate allows, that it hosts a type.
func (w *workflows) hosts(t *testing.T, bridge catalog.App, typ string) error {
	t.Helper()
	source, err := identity.New(identity.Config{Files: w.certificateIn(t, sandbox.AppTrustDomain, w.authority, bridge)}, bridge, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	anybody := func(identity.ID) error { return nil }
	conn, err := grpc.NewClient("passthrough:///"+w.placement.Address, grpc.WithTransportCredentials(source.ClientCredentials(anybody)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := placementv1.NewPlacementClient(conn).ReportDaprStatus(meshtest.Within(t, meshtest.Patience))
	if err != nil {
		return err
	}
	if err := stream.Send(&placementv1.Host{Name: "127.0.0.1:1", Id: bridge.ID, Namespace: bridge.Namespace, Entities: []string{typ}, ApiLevel: 20, Operation: placementv1.HostOperation_REPORT}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	return err
}
