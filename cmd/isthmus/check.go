package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

func newCheck(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Look for faults of the service, its peers and the way to them",
		Long: `Look for faults: on this command's way to the service, in what the service knows, and on its way
to the gateways of other clusters, which it tries. Nothing is changed. For each fault you see what
was found, what to do, and a section of docs/reference/checks.md.

Exit codes: 0 all is well; 1 there are warnings; 2 something fails, or wrong use.`,
		Example: `  isthmus check
  isthmus check --all
  isthmus check -o json`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	all := cmd.Flags().BoolP("all", "a", false, "checks that found nothing wrong, too")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		options, err := c.options(cmd)
		if err == nil {
			err = options.Check()
		}
		if err != nil {
			return err
		}
		timeout, err := cmd.Flags().GetDuration("timeout")
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		way := &check.Way{Service: options.Service(), Version: programVersion(), BySentry: options.Sentry != ""}
		cluster, results := checkService(ctx, options, way)
		results = append(check.Command(way), results...)
		check.Sort(results)
		checked := show.DiagnosisOf(cluster, results)
		if output.Format == show.Table {
			err = show.Diagnose(cmd.OutOrStdout(), &checked, *all)
		} else {
			err = show.Print(cmd.OutOrStdout(), output.Format, "Diagnosis", checked)
		}
		switch {
		case err != nil:
			return err
		case checked.Fail > 0:
			return errFaults
		case checked.Warn > 0:
			return errReported
		}
		return nil
	}
	return cmd
}

// errFaults is errReported with an exit code of its own.
var errFaults = errors.New("faults reported")

// checkService has the service check itself, and notes how the way there was.
func checkService(ctx context.Context, o client.Options, way *check.Way) (cluster string, all []check.Result) {
	if way.Sentry = o.CheckSentry(ctx); way.Sentry != nil {
		way.Err = way.Sentry
		return "", nil
	}
	conn, err := client.Dial(ctx, o)
	if err != nil {
		way.Err, way.Own = err, true
		return "", nil
	}
	defer conn.Close()
	failed := func(err error) {
		way.Denied, way.Old = status.Code(err) == codes.PermissionDenied, status.Code(err) == codes.Unimplemented
		way.Err = conn.Explain(err)
	}
	if o.Plain() && o.Cluster != "" { // otherwise its certificate says which cluster's it is
		if _, err := conn.ClusterName(ctx); err != nil {
			failed(err)
			return "", nil
		}
	}
	begin := time.Now()
	stream, err := v1alpha1.NewStatusClient(conn).Check(ctx, &v1alpha1.CheckRequest{})
	err = receive(stream, err, func(m *v1alpha1.CheckResponse) error {
		if m.GetNowUnixMs() != 0 {
			now := time.Now()
			way.Unsure = now.Sub(begin)
			way.Ahead = time.UnixMilli(m.GetNowUnixMs()).Sub(now)
			way.ServiceVersion, cluster = m.GetVersion(), m.GetCluster()
		}
		for _, r := range m.GetResults() {
			all = append(all, check.Result{
				Check: r.GetCheck(), Level: check.Level(r.GetLevel()), Kind: r.GetKind(), Name: r.GetName(), Found: r.GetFound(), Fix: r.GetFix(),
			})
		}
		return nil
	})
	if err != nil {
		failed(err)
	}
	return cluster, all
}
