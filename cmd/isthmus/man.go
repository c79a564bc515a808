package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:   "man DIRECTORY",
		Short: "Write manual pages",
		Long: `Write a manual page for each command into a directory, which is made if it is missing. man reads
them if the directory is man1 below one of MANPATH.`,
		Example: `  isthmus man ~/.local/share/man/man1
  man isthmus-explain`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("make the directory: %w", err)
			}
			header := &doc.GenManHeader{Title: "ISTHMUS", Section: "1", Source: "isthmus " + programVersion(), Manual: "Isthmus"}
			if err := doc.GenManTree(cmd.Root(), header, args[0]); err != nil {
				return fmt.Errorf("write manual pages: %w", err)
			}
			return nil
		},
	}
}
