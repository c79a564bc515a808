package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
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

func newVersion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  isthmus version
  isthmus version -o json`,
		Args: arguments(cobra.NoArgs),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if output.Format != show.Table {
			return show.Print(cmd.OutOrStdout(), output.Format, "ProgramVersion", &v1alpha1.ProgramVersion{
				Version: programVersion(), Go: runtime.Version(), Os: runtime.GOOS, Arch: runtime.GOARCH,
			})
		}
		_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
		return err
	}
	return cmd
}

// versionLine is what "isthmus version" and --version print.
func versionLine() string {
	return fmt.Sprintf("isthmus %s %s %s/%s", programVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
