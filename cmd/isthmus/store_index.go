package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newStoreIndex() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "index -c FILE",
		Short: "Rebuild a store's index after changes by hand",
		Long: `Have the index of a config store hold just the objects that are there, and every reader read
everything again: after objects were written or deleted by other means than Isthmus. No object
is changed. Only the dapr store has an index; the others find such changes by themselves, and
that is said, with exit code 1.`,
		Example: `  isthmus store index -c isthmus.yaml`,
		Args:    arguments(cobra.NoArgs),
	}
	file := cmd.Flags().StringP("config", "c", "isthmus.yaml", "an isthmus.yaml, or a file with only its \"store\"")
	output := outputFlag(cmd)
	_ = cmd.MarkFlagFilename("config", "yaml", "yml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		named, err := loadStore(cmd, *file)
		if err != nil {
			return err
		}
		none := fmt.Errorf("%s: the %s store has no index and needs none; what is written by hand, its readers find by themselves", *file, named.Name())
		if named.New() { // not to be made for this
			return none
		}
		store, err := named.Open(configstore.Scope{}, warnings(cmd.ErrOrStderr()))
		if err != nil {
			return fmt.Errorf("%s: %w", *file, err)
		}
		defer store.Close()
		indexer, ok := store.(configstore.Indexer)
		if !ok {
			return none
		}
		n, err := indexer.Reindex(cmd.Context())
		if err != nil {
			return fmt.Errorf("%s: %w", *file, err)
		}
		return printAnswer(cmd, output.Format, "StoreIndex", &v1alpha1.StoreIndex{Store: named.Name(), Objects: uint32(n)}, func(w *show.Screen) error {
			_, err := show.Say(w, "%s (%s): the index is right: %s\n", named.Name(), *file, show.Count(n, "object"))
			return err
		})
	}
	return cmd
}
