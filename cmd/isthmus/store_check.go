package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/probe"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newStoreCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check -c FILE",
		Short: "Try a store out, and change nothing",
		Long: `Open the config store that a file names and try out what the service does with it: who answers,
whether the credentials let it read, watch and write, which objects are there or can't be used, and
how long each takes. Nothing is written. If anything is wrong the exit code is 1.

With --app it tries what that app's sidecar does when it runs without a service: it reads the
app's own AppEndpoints and every Cluster, and no more.`,
		Example: `  isthmus store check -c isthmus.yaml
  isthmus store check -c sidecar.yaml --app shop/checkout -o json`,
		Args: arguments(cobra.NoArgs),
	}
	file := cmd.Flags().StringP("config", "c", "isthmus.yaml", "an isthmus.yaml, or a file with only its \"store\"")
	app := cmd.Flags().String("app", "", bothForms+": try what this app's sidecar does without a service")
	timeout := cmd.Flags().Duration("timeout", 10*time.Second, "how long each step may take")
	output := outputFlag(cmd)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var scope configstore.Scope
		if *app != "" {
			var err error
			if scope.App, err = show.ParseApp(*app); err != nil {
				return misused(fmt.Errorf("--app: %w", err))
			}
		}
		named, err := loadStore(cmd, *file)
		if err != nil {
			return err
		}
		if named.New() {
			return fmt.Errorf("%s: there is no file %s; the service makes it when it starts", *file, named.Embedded.Path)
		}
		store, err := named.Open(scope, warnings(cmd.ErrOrStderr()))
		if err != nil {
			return fmt.Errorf("%s: %w", *file, err)
		}
		defer store.Close()
		result := probe.Run(cmd.Context(), store, scope, *timeout)
		return tellCheck(cmd, output.Format, show.CheckedOf(result, named.Name()))
	}
	return cmd
}

func tellCheck(cmd *cobra.Command, format show.Format, checked *v1alpha1.StoreCheck) error {
	err := printAnswer(cmd, format, "StoreCheck", checked, func(w *show.Screen) error { return show.Check(w, checked) })
	if err == nil && !checked.GetGood() {
		err = errReported
	}
	return err
}
