package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/files"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/show"
)

func newApply(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "apply -f FILE",
		Short: "Write objects, all of them or none",
		Long: `Write the objects of files, all of them or none. It returns once lookups follow the change.

With --dry-run nothing is written, and the lookups that would end in another way are listed.`,
		Example: `  isthmus apply -f objects.yaml
  isthmus apply -f objects/ -f more.yaml --dry-run
  generate | isthmus apply -f -`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd)
	output := outputFlag(cmd)
	names := fileFlag(cmd)
	dryRun := dryRunFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := readFiles(cmd, *names)
		if err != nil {
			return err
		}
		req := &v1alpha1.ApplyRequest{DryRun: *dryRun}
		for _, object := range set.Objects {
			req.Objects = append(req.Objects, &v1alpha1.ApplyObject{Json: api.EncodeJSON(object)})
		}
		return c.change(cmd, output.Format, *dryRun, func(ctx context.Context, conn *client.Conn) (*v1alpha1.ApplyResponse, error) {
			return v1alpha1.NewObjectsClient(conn).Apply(ctx, req)
		})
	}
	return cmd
}

// change makes a call that writes, and prints what it did.
func (c *connection) change(cmd *cobra.Command, output show.Format, dryRun bool, call func(context.Context, *client.Conn) (*v1alpha1.ApplyResponse, error)) error {
	var answer *v1alpha1.ApplyResponse
	err := c.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
		answer, err = call(ctx, conn)
		return err
	})
	if err != nil {
		return err
	}
	applied := show.AppliedOf(answer, dryRun)
	if output == show.Table {
		return show.Apply(cmd.OutOrStdout(), applied)
	}
	return show.Print(cmd.OutOrStdout(), output, applied)
}

func fileFlag(cmd *cobra.Command) *[]string {
	names := cmd.Flags().StringSliceP("filename", "f", nil, "file, directory, or - for standard input; can be given more than once")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return names
}

func dryRunFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("dry-run", false, "write nothing; list the lookups that would end in another way")
}

// readFiles reads the objects that -f names.
func readFiles(cmd *cobra.Command, names []string) (*files.Set, error) {
	if len(names) == 0 {
		return nil, misused(errors.New("-f is missing; name a file, a directory, or - for standard input"))
	}
	set, err := files.Read(names, cmd.InOrStdin())
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), err)
		return nil, errReported
	}
	if len(set.Objects) == 0 {
		return nil, fmt.Errorf("no object in %s", strings.Join(names, ", "))
	}
	return set, nil
}

func wireKey(k catalog.Key) *v1alpha1.ObjectKey {
	return &v1alpha1.ObjectKey{Kind: string(k.Kind), Namespace: k.Namespace, Name: k.Name}
}
