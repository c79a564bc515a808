package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kube"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
	"github.com/isthmus-mesh/isthmus/resolver-service/check/snapshot"
)

func newCheck(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for faults of the service, its peers and the way to them",
		Long: `Look for faults: on this command's way to the service, in what the service knows, and on its way
to the gateways of other clusters, which it tries. With a context of your kubeconfig also in the
Kubernetes cluster: Dapr, pods, the gateway's Service. Nothing is changed. For each fault you see the
finding, the cure, and a section of docs/reference/checks.md.

Exit codes: 0 all is well; 1 there are warnings; 2 something fails, or wrong use.`,
		Example: `  isthmus check
  isthmus check --all
  isthmus check -o json
  isthmus check --context kind-west --app shop/checkout
  isthmus check --peer east
  isthmus check --wait 5m
  isthmus check --pre --context kind-west --cluster west`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	e := &examination{cmd: cmd}
	f := cmd.Flags()
	all := f.BoolP("all", "a", false, "checks that found nothing wrong, too")
	f.BoolVar(&e.pre, "pre", false, "look whether the Kubernetes cluster of your kubeconfig is ready for Isthmus; --cluster is the name that it is to have")
	f.StringVar(&e.peer, "peer", "", "look at this cluster alone, and try the apps that it exports")
	f.StringVar(&e.app, "app", "", "look at this app alone, "+bothForms+", and at what it may call")
	wait := f.Duration("wait", 0, "repeat until all is well, for so long at most, and say what is waited for")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := e.prepare(c); err != nil {
			return err
		}
		checked, err := e.until(*wait)
		if err != nil {
			return err
		}
		err = printAnswer(cmd, output.Format, "Diagnosis", checked, func(w *show.Screen) error { return show.Diagnose(w, checked, *all) })
		switch {
		case err != nil:
			return err
		case checked.GetFail() > 0:
			return errFaults
		case checked.GetWarn() > 0:
			return errReported
		}
		return nil
	}
	return cmd
}

// errFaults is errReported with an exit code of its own.
var errFaults = errors.New("faults reported")

// examination is what a command looks at.
type examination struct {
	cmd       *cobra.Command
	options   client.Options
	timeout   time.Duration // of one round
	pre       bool
	peer, app string
	request   *v1alpha1.CheckRequest
}

func (e *examination) prepare(c *connection) (err error) {
	if e.pre && e.peer+e.app != "" {
		return misused(errors.New("--pre looks at a cluster without Isthmus; leave out --peer and --app"))
	}
	if e.options, err = c.options(e.cmd); err == nil && !e.pre {
		err = e.options.Check()
	}
	if err != nil {
		return misused(err)
	}
	if e.timeout, err = e.cmd.Flags().GetDuration("timeout"); err != nil {
		return err
	}
	e.request = &v1alpha1.CheckRequest{Peer: e.peer}
	if e.app != "" {
		app, err := c.flagApp(e.cmd, "app", e.app)
		if err != nil {
			return err
		}
		e.request.App = wire.App(app)
	}
	return nil
}

// checkAgain is the pause between rounds of --wait.
const checkAgain = 2 * time.Second

// until makes rounds until all is well, for so long at most, and returns the last. It tells on standard
// error what it waits for, when that changes.
func (e *examination) until(limit time.Duration) (*v1alpha1.CheckResponse, error) {
	end := time.Now().Add(limit)
	said := ""
	for {
		checked, err := e.round()
		if limit == 0 || err == nil && checked.GetFail()+checked.GetWarn() == 0 || time.Until(end) < checkAgain {
			return checked, err
		}
		if now := waitsFor(checked, err); now != said {
			said = now
			show.Say(e.cmd.ErrOrStderr(), "waiting for %s\n", now)
		}
		if !live.Sleep(e.cmd.Context(), checkAgain) {
			return checked, fmt.Errorf("interrupted while waiting for %s", said)
		}
	}
}

// waitsFor names the checks that are not well.
func waitsFor(d *v1alpha1.CheckResponse, err error) string {
	if err != nil {
		return err.Error()
	}
	var all []string
	for _, r := range d.GetResults() {
		if r.GetLevel() != string(check.OK) {
			all = append(all, strings.TrimSpace(r.GetCheck()+" "+r.GetName()))
		}
	}
	return strings.Join(all, ", ")
}

// round makes all checks once. The error is one of wrong use.
func (e *examination) round() (*v1alpha1.CheckResponse, error) {
	ctx, cancel := context.WithTimeout(e.cmd.Context(), e.timeout)
	defer cancel()
	d := &v1alpha1.CheckResponse{}
	var status *v1alpha1.StatusResponse
	if !e.pre {
		way := &check.Way{Service: e.options.Service(), Version: programVersion(), BySentry: e.options.Sentry != ""}
		var err error
		if status, err = e.service(ctx, way, d); err != nil {
			return nil, misused(err)
		}
		d.Results = append(check.Messages(check.Command(way)), d.GetResults()...)
	}
	if e.pre || e.options.OnKubernetes() {
		of, err := e.kubernetes(status)
		if err != nil {
			return nil, err
		}
		d.Results = append(d.Results, check.Messages(of)...)
	}
	check.Sort(d.GetResults())
	return show.Diagnosed(d), nil
}

// kubernetes looks at the cluster of the kubeconfig.
func (e *examination) kubernetes(status *v1alpha1.StatusResponse) ([]check.Result, error) {
	ctx, cancel := context.WithTimeout(e.cmd.Context(), e.timeout)
	defer cancel()
	cluster, err := kube.Open(e.options.Kubeconfig, e.options.KubeContext)
	if err != nil {
		return nil, misused(err)
	}
	defer cluster.Close()
	s, err := snapshot.Read(ctx, cluster.Server, e.options.Namespace())
	if err != nil {
		return check.Unreachable(cluster.Host(), err), nil
	}
	c := &check.Cluster{Snapshot: s, Namespace: e.options.Namespace(), Name: e.options.Cluster, Status: status, Peer: e.peer}
	if a := e.request.GetApp(); a != nil {
		c.App = catalog.App{Namespace: a.GetNamespace(), ID: a.GetId()}
	}
	if e.pre {
		c.AskRights(ctx, cluster.Server)
	}
	return check.OfCluster(c, e.pre), nil
}

// service has the service check itself, and notes how the way there was. The status is for the checks
// of a Kubernetes cluster.
func (e *examination) service(ctx context.Context, way *check.Way, all *v1alpha1.CheckResponse) (now *v1alpha1.StatusResponse, misuse error) {
	o := e.options
	o.Note = nil                    // the checks say it
	way.Sentry = o.CheckSentry(ctx) // without it, a kept certificate or the operator socket may do
	conn, err := client.Dial(ctx, o)
	if err != nil {
		way.Err, way.Own = cmp.Or(way.Sentry, err), !o.OnKubernetes()
		return nil, nil
	}
	defer conn.Close()
	failed := func(err error) {
		way.Denied, way.Old = status.Code(err) == codes.PermissionDenied, status.Code(err) == codes.Unimplemented
		way.Err = conn.Explain(err)
	}
	if o.Unnamed() && o.Cluster != "" { // otherwise its certificate says which cluster's it is
		if _, err := conn.ClusterName(ctx); err != nil {
			failed(err)
			return nil, nil
		}
	}
	begin := time.Now()
	stream, err := v1alpha1.NewStatusClient(conn).Check(ctx, e.request)
	err = wire.Receive(stream, err, func(m *v1alpha1.CheckResponse) error {
		if m.GetNowUnixMs() != 0 {
			now := time.Now()
			way.Unsure = now.Sub(begin)
			way.Ahead = time.UnixMilli(m.GetNowUnixMs()).Sub(now)
			way.ServiceVersion = m.GetVersion()
		}
		proto.Merge(all, m)
		return nil
	})
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound, codes.InvalidArgument:
		return nil, conn.Explain(err)
	default:
		failed(err)
		return nil, nil
	}
	if o.OnKubernetes() {
		now, _ = v1alpha1.NewStatusClient(conn).Status(ctx, &v1alpha1.StatusRequest{}) // what takes it is left out otherwise
	}
	return now, nil
}
