package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/bundle"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kube"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newSupportBundle(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "support-bundle [-o FILE.tar.gz]",
		Short: "Collect what tells how a service is, without secrets",
		Long: `Collect into one archive what others need who look for a fault: what the commands status, check,
apps, sidecars, events, analyze, calls and get print, the configuration in force, metrics, versions and
what the process takes. From Kubernetes also the states, events and logs of the service's pods, as far
as your rights go.

Private keys, tokens, passwords, and users and parameters in URLs are left out. Names and addresses of apps are
in it. INDEX.txt lists the files, and what could not be read.`,
		Example: `  isthmus support-bundle --socket data/operator-west.sock
  isthmus support-bundle --context kind-west -o west.tar.gz`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toWrite)
	path := cmd.Flags().StringP("output", "o", "", "file to write, which is not there yet (default isthmus-support-<cluster>-<time>.tar.gz)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		options, err := c.options(cmd)
		if err == nil {
			err = options.Check()
		}
		if err != nil {
			return err
		}
		now := time.Now()
		all := bundle.New(now)
		cluster := addAnswers(c, cmd, all)
		if options.OnKubernetes() {
			addNamespace(c, cmd, options, all)
		}
		if all.Empty() || cmd.Context().Err() != nil {
			return fmt.Errorf("nothing could be read: %s", strings.Join(all.Missing(), "; "))
		}
		name := cmp.Or(*path, fmt.Sprintf("isthmus-support-%s-%s.tar.gz", cmp.Or(cluster, "unknown"), now.UTC().Format("20060102T150405Z")))
		about := fmt.Sprintf("Support bundle of cluster %s, the resolver service at %s, by %s", cmp.Or(cluster, "unknown"), options.Service(), versionLine())
		if err := all.Write(name, about); err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), name)
		for _, missing := range all.Missing() {
			show.Say(cmd.ErrOrStderr(), "not in it: %s\n", missing)
		}
		return nil
	}
	return cmd
}

// supportParts are the files that other commands print.
var supportParts = []struct {
	file string
	args []string
}{
	{"status.json", []string{"status", "-o", "json"}},
	{"checks.json", []string{"check", "--all", "-o", "json"}},
	{"apps.json", []string{"apps", "-o", "json"}},
	{"sidecars.json", []string{"sidecars", "-o", "json"}},
	{"calls.json", []string{"calls", "-o", "json"}},
	{"events.json", []string{"events", "--since", "0", "-o", "json"}},
	{"analysis.json", []string{"analyze", "-o", "json"}},
	{"objects.yaml", []string{"get", "all", "-o", "yaml"}},
	{"version.json", []string{"version", "-o", "json"}},
}

// addAnswers adds what the service says, and returns the name of its cluster. One that does not
// answer is asked by status and check alone.
func addAnswers(c *connection, cmd *cobra.Command, to *bundle.Bundle) (cluster string) {
	status, away := c.status(cmd)
	asked := []string{"status", "check", "version"}
	for _, part := range supportParts {
		if away != nil && !slices.Contains(asked, part.args[0]) {
			continue
		}
		text, err := runOther(cmd, part.args)
		to.Add(part.file, text, err)
	}
	if away != nil {
		to.Add("everything else that the service tells", nil, errors.New("it does not answer"))
		return ""
	}
	files := map[string][]byte{}
	err := askEach(c, cmd, v1alpha1.NewStatusClient, v1alpha1.StatusClient.Support, &v1alpha1.SupportRequest{}, func(m *v1alpha1.SupportResponse) error {
		files[m.GetName()] = append(files[m.GetName()], m.GetText()...)
		return nil
	})
	for name, text := range files {
		to.Add("service/"+strings.ReplaceAll(name, "/", "_"), text, nil)
	}
	if err != nil {
		to.Add("service", nil, err)
	}
	return status.GetCluster()
}

// runOther runs another command with the flags of this one, and returns what it prints.
func runOther(cmd *cobra.Command, args []string) ([]byte, error) {
	other, rest, err := cmd.Root().Find(args)
	if err == nil {
		err = other.ParseFlags(rest)
	}
	if err != nil {
		return nil, err
	}
	var out, complaints bytes.Buffer
	other.SetOut(&out)
	other.SetErr(&complaints)
	other.SetContext(cmd.Context())
	err = other.RunE(other, other.Flags().Args())
	if found := errors.Is(err, errReported) || errors.Is(err, errFaults); found && out.Len() > 0 {
		return out.Bytes(), nil // that is what the exit code says
	}
	return out.Bytes(), err
}

// addNamespace adds what Kubernetes tells of the service's pods.
func addNamespace(c *connection, cmd *cobra.Command, o client.Options, to *bundle.Bundle) {
	ctx, cancel := context.WithTimeout(cmd.Context(), toWrite)
	defer cancel()
	cluster, err := kube.Open(o.Kubeconfig, o.KubeContext)
	if err != nil {
		to.Add("kubernetes", nil, err)
		return
	}
	defer cluster.Close()
	to.AddKubernetes(ctx, cluster, o.Namespace(), client.PodSelector)
}
