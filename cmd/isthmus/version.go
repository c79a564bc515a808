package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// version is set by the linker, from "git describe".
var version string

// programVersion is the version that was linked in, or what Go knows of the build.
func programVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// versionWithin is how long the service has to tell its version.
const versionWithin = 3 * time.Second

func newVersion(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of this program and of the service",
		Long: `Print the version of this program, and that of the service that it would ask. Without a service, the
reason stands on standard error, and the exit code is 0 all the same.`,
		Example: `  isthmus version
  isthmus version --client
  isthmus version -o jsonpath={.service.version}`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, versionWithin)
	output := outputFlag(cmd)
	alone := cmd.Flags().Bool("client", false, "only the version of this program; no service is asked")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer := &v1alpha1.ProgramVersion{Version: programVersion(), Go: runtime.Version(), Os: runtime.GOOS, Arch: runtime.GOARCH}
		var unknown error
		if !*alone {
			answer.Service, unknown = c.serviceVersion(cmd)
		}
		if output.Format != show.Table {
			if err := show.Print(cmd.OutOrStdout(), output.Format, "ProgramVersion", answer); err != nil {
				return err
			}
		} else {
			show.Say(cmd.OutOrStdout(), "%s\n", versionLine())
			if s := answer.GetService(); s != nil {
				show.Say(cmd.OutOrStdout(), "service %s, cluster %s, at %s\n", s.GetVersion(), s.GetCluster(), s.GetAddress())
			}
		}
		if unknown != nil {
			show.Say(cmd.ErrOrStderr(), "service: not known: %s\n", show.Lines(unknown))
		}
		return nil
	}
	return cmd
}

// serviceVersion asks the service for its version.
func (c *connection) serviceVersion(cmd *cobra.Command) (v *v1alpha1.ServiceVersion, err error) {
	err = c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
		answer, err := v1alpha1.NewStatusClient(conn).Status(ctx, &v1alpha1.StatusRequest{})
		if err == nil {
			v = &v1alpha1.ServiceVersion{Version: answer.GetVersion(), Cluster: answer.GetCluster(), Address: conn.Service()}
		}
		return err
	})
	return v, err
}

// versionLine is what "isthmus --version" prints.
func versionLine() string {
	return fmt.Sprintf("isthmus %s %s %s/%s", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
