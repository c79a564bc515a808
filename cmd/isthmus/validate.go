package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/resolver-service/objects"
)

func newValidate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "validate -f FILE",
		Short: "Check objects without a service",
		Long: `Check the objects of files as apply would, without a service. Every mistake is printed with
its file, line and column, and what to do about it; then the exit code is 1.

Documents of SMI and MCS become objects here as with apply, with a note on each ignored field.`,
		Example: `  isthmus validate -f objects.yaml
  isthmus validate -f objects/ --cluster west --domain mesh.example`,
		Args: arguments(cobra.NoArgs),
	}
	names := fileFlag(cmd)
	domain := cmd.Flags().String("domain", catalog.DefaultDomain, "domain of the cluster, to check that host names fit")
	cluster := cmd.Flags().String("cluster", "", "name of the cluster that the objects are for, to check that host names fit")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := catalog.CheckDomain(*domain); err != nil {
			return misused(fmt.Errorf("--domain: %w", err))
		}
		set, err := readFiles(cmd, *names, nil)
		if err != nil {
			return err
		}
		if err := checkHosts(catalog.Domain(*domain), *cluster, set.Objects); err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), show.Lines(err))
			return errReported
		}
		show.WarnOfRoots(cmd.ErrOrStderr(), set.Objects, time.Now())
		show.WarnOfGateways(cmd.ErrOrStderr(), set.Objects)
		show.WarnOfInstances(cmd.ErrOrStderr(), set.Objects)
		show.Say(cmd.OutOrStdout(), "%s in %s: all good\n", show.Count(len(set.Objects), "object"), show.Count(set.Files, "file"))
		return nil
	}
	return cmd
}

// checkHosts checks that the host names of objects fit, with the clusters among them.
func checkHosts(domain catalog.Domain, cluster string, all []catalog.Object) error {
	var clusters []*catalog.Cluster
	for _, object := range all {
		if c, ok := object.(*catalog.Cluster); ok {
			clusters = append(clusters, c)
		}
	}
	var mistakes []error
	for _, object := range all {
		mistakes = append(mistakes, objects.CheckHosts(domain, cluster, clusters, object))
	}
	return errors.Join(mistakes...)
}
