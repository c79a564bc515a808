package system

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/tests/meshtest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
)

// mesh is two clusters that know of each other.
type mesh struct {
	*sandbox.Sandbox
	authority  *sandbox.Authority // nil in plain text
	traces     *collector.Collector
	west, east *sandbox.Cluster
	removes    bool // the directory too
}

type meshOptions struct {
	plain        bool           // no mTLS anywhere
	westSettings map[string]any // more of isthmus.yaml
	eastSettings map[string]any
}

func startMesh(ctx context.Context, dir string, o meshOptions) (m *mesh, err error) {
	s, err := sandbox.New(dir, quiet)
	if err != nil {
		return nil, err
	}
	m = &mesh{Sandbox: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.close())
		}
	}()
	if !o.plain {
		if m.authority, err = sandbox.NewAuthority(); err != nil {
			return m, err
		}
	}
	if m.traces, err = s.Traces(); err != nil {
		return m, err
	}
	ctx, cancel := context.WithTimeout(ctx, meshtest.Patience)
	defer cancel()
	options := sandbox.ClusterOptions{Name: "west", Authority: m.authority, Traces: m.traces.Endpoint(), Settings: o.westSettings}
	if m.west, err = s.Cluster(ctx, options); err != nil {
		return m, err
	}
	options.Name, options.Settings = "east", o.eastSettings
	m.east, err = s.Cluster(ctx, options)
	return m, err
}

// meet has each cluster know the other.
func (m *mesh) meet(t *testing.T) error {
	return errors.Join(
		m.tryApply(t, m.west, meshtest.Cluster("east", m.east.Gateway)),
		m.tryApply(t, m.east, meshtest.Cluster("west", m.west.Gateway)))
}

func (m *mesh) close() error {
	err := m.Close()
	if m.removes {
		err = errors.Join(err, os.RemoveAll(m.Dir()))
	}
	return err
}

// sidecar starts a sidecar with an app behind it, which is gone after the test.
func (m *mesh) sidecar(t *testing.T, c *sandbox.Cluster, o sandbox.SidecarOptions) *sandbox.Sidecar {
	t.Helper()
	s, err := c.Sidecar(meshtest.Within(t, meshtest.Patience), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.Name(), s.Tail(15))
		}
		if err := s.Kill(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// app is sidecar for an app that needs nothing special.
func (m *mesh) app(t *testing.T, c *sandbox.Cluster, namespace, id string) *sandbox.Sidecar {
	t.Helper()
	return m.sidecar(t, c, sandbox.SidecarOptions{App: catalog.App{Namespace: namespace, ID: id}})
}

// isthmus runs the command line against a cluster and returns both outputs.
func (m *mesh) isthmus(t *testing.T, c *sandbox.Cluster, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	binary, err := sandbox.Binary("isthmus")
	if err != nil {
		return "", "", err
	}
	if m.authority == nil {
		args = append(args, "--insecure")
	}
	cmd := exec.CommandContext(meshtest.Within(t, meshtest.Patience), binary, args...)
	cmd.Env = append(os.Environ(), c.CommandLine()...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

func (m *mesh) tryApply(t *testing.T, c *sandbox.Cluster, yaml string) error {
	t.Helper()
	if out, errs, err := m.isthmus(t, c, yaml, "apply", "-f", "-"); err != nil {
		return fmt.Errorf("isthmus apply in %s: %w\n%s%s", c.Name, err, out, errs)
	}
	return nil
}

// apply writes objects; it returns once lookups in the cluster's service follow them.
func (m *mesh) apply(t *testing.T, c *sandbox.Cluster, objects ...string) {
	t.Helper()
	if err := m.tryApply(t, c, strings.Join(objects, "---\n")); err != nil {
		t.Fatal(err)
	}
}

// decision is what "isthmus explain -o json" prints.
type decision struct {
	Outcome, Address, Cluster, Gateway, Rule, Reason string
	Notes                                            []string
	Revision                                         uint64
	Routes                                           []struct {
		Ready, Ramp int
		Reason      string
	}
}

// explain asks a cluster's service why a lookup ends as it does.
func (m *mesh) explain(t *testing.T, c *sandbox.Cluster, caller, app string) (d decision, err error) {
	t.Helper()
	out, errs, err := m.isthmus(t, c, "", "explain", "--from", caller, app, "-o", "json")
	if jsonErr := json.Unmarshal([]byte(out), &d); jsonErr != nil {
		return d, fmt.Errorf("isthmus explain: %w, %w: %s%s", err, jsonErr, out, errs)
	}
	return d, nil
}

// leadsTo waits until a cluster's service sends a caller to a cluster, "" being nowhere.
func (m *mesh) leadsTo(t *testing.T, c *sandbox.Cluster, caller, app, cluster string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		d, err := m.explain(t, c, caller, app)
		if err == nil && d.Cluster != cluster {
			err = fmt.Errorf("%s is led to %q for %s, want %q: %+v", caller, d.Cluster, app, cluster, d)
		}
		return err
	})
}

// answers waits until an app of a cluster answers a sidecar's call.
func answers(t *testing.T, from *sandbox.Sidecar, id, cluster string) {
	t.Helper()
	meshtest.Eventually(t, meshtest.Patience, func() error {
		reply, err := from.Invoke(meshtest.Within(t, meshtest.Attempt), id, "hello", untraced)
		if err == nil && reply.Cluster != cluster {
			err = fmt.Errorf("%s in %s answers, want %s", id, reply.Cluster, cluster)
		}
		return err
	})
}
