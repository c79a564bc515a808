package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kinds"
)

func newDelete(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete (KIND NAMESPACE/NAME... | -f FILE)",
		Short: "Delete objects, all of them or none",
		Long: `Delete the objects that are named, or those that files have. It returns once lookups follow the
change. If one of them is not there, nothing is deleted.

With --diff each object is shown as it is, and then just that is deleted, unless somebody changes
one of them in between. With --dry-run nothing is deleted, and the lookups that would end in another
way are listed.`,
		Example: `  isthmus delete aep shop/checkout
  isthmus delete cluster east --diff --dry-run
  isthmus delete -f objects.yaml`,
		ValidArgsFunction: c.completeObject(true),
	}
	c.flags(cmd, toWrite)
	output := outputFlag(cmd)
	names := fileFlag(cmd)
	dryRun, inParts, diff := dryRunFlag(cmd), inPartsFlag(cmd), diffFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keys, err := keysToDelete(cmd, args, *names)
		if err != nil {
			return err
		}
		req := &v1alpha1.DeleteRequest{DryRun: *dryRun, InParts: *inParts}
		for _, key := range keys {
			req.Keys = append(req.Keys, wireKey(key))
		}
		call := func(ctx context.Context, conn *client.Conn, shown *v1alpha1.ApplyResponse) (*v1alpha1.ApplyResponse, error) {
			defer patience(cmd.ErrOrStderr(), len(req.GetKeys()))()
			if *diff && shown == nil {
				return v1alpha1.NewObjectsClient(conn).Delete(ctx, &v1alpha1.DeleteRequest{Keys: req.GetKeys(), DryRun: true, WithHeld: true})
			}
			if shown != nil {
				req.IfRevisions = make([]string, len(req.GetKeys()))
			}
			pin(shown, func(i int, revision string) { req.IfRevisions[i] = revision })
			return v1alpha1.NewObjectsClient(conn).Delete(ctx, req)
		}
		if *diff {
			return c.changeShown(cmd, output.Format, *dryRun, make([]catalog.Object, len(keys)), call)
		}
		return c.change(cmd, output.Format, *dryRun, func(ctx context.Context, conn *client.Conn) (*v1alpha1.ApplyResponse, error) {
			return call(ctx, conn, nil)
		})
	}
	return cmd
}

// keysToDelete are the keys of the arguments, or of the objects in files.
func keysToDelete(cmd *cobra.Command, args, names []string) ([]catalog.Key, error) {
	switch {
	case len(names) > 0 && len(args) > 0:
		return nil, misused(errors.New("-f and names exclude each other; keep one"))
	case len(names) > 0:
		set, err := readFiles(cmd, names, nil)
		if err != nil {
			return nil, err
		}
		var keys []catalog.Key
		for _, object := range set.Objects {
			keys = append(keys, object.Key())
		}
		return keys, nil
	case len(args) < 2:
		return nil, misused(errors.New("name what to delete: a kind and one name or more, or files by -f"))
	}
	kind, err := kinds.Parse(args[0])
	if err == nil && kind == kinds.All {
		err = errors.New("a name needs a kind; \"all\" is none")
	}
	var keys []catalog.Key
	for _, name := range args[1:] {
		key, keyErr := kinds.ParseKey(kind, name)
		err = errors.Join(err, keyErr)
		keys = append(keys, key)
	}
	return keys, misused(err)
}
