package main

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/internal/show"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
)

func newStore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store COMMAND",
		Short: "Check a config store, copy one into another, or rebuild its index",
		Long: `Work on config stores themselves, without a service. A store is named by a file: an isthmus.yaml,
or one that has only the "store" of one. Paths in it are relative to that file.`,
		Example: `  isthmus store check -c isthmus.yaml
  isthmus store copy --from isthmus.yaml --to new.yaml --dry-run`,
		RunE: unknownCommand,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newStoreCheck(), newStoreCopy(), newStoreIndex())
	return cmd
}

// loadStore reads which store a file names, and prints what is wrong with the file.
func loadStore(cmd *cobra.Command, file string) (resolverservice.Store, error) {
	named, err := resolverservice.LoadStore(file)
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), show.Lines(err))
		return named, errReported
	}
	return named, nil
}

// warnings logs what a person at a terminal should know.
func warnings(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
