package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kinds"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newDelete(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete (KIND NAME... | -f FILE)",
		Short: "Delete objects, all of them or none",
		Long: `Delete the objects that are named, or those that files have. It returns once lookups follow the
change. If one of them is not there, nothing is deleted.

On a terminal it first shows the lookups that would end in another way, and asks, unless --yes is
given. A script is not asked.

With --diff each object is shown as it is, and then just that is deleted, unless somebody changes
one of them in between. With --dry-run nothing is deleted, and the lookups that would end in another
way are listed.`,
		Example: `  isthmus delete aep shop/checkout
  isthmus delete aep checkout orders -n shop --yes
  isthmus delete cluster east --diff --dry-run
  isthmus delete -f objects.yaml`,
		ValidArgsFunction: c.completeObject(true),
	}
	c.flags(cmd, toWrite)
	output := outputFlag(cmd)
	names := fileFlag(cmd)
	namespace := c.namespaceFlag(cmd, "namespace of the objects that are named")
	yes := yesFlag(cmd)
	dryRun, inParts, diff := dryRunFlag(cmd), inPartsFlag(cmd), diffFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keys, err := keysToDelete(cmd, args, *names, *namespace)
		if err != nil {
			return err
		}
		req := &v1alpha1.DeleteRequest{DryRun: *dryRun, InParts: *inParts}
		for _, key := range keys {
			req.Keys = append(req.Keys, wire.Key(key))
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
		if !*yes && !*dryRun && onTerminal(cmd) {
			err := c.change(cmd, output.Format, true, func(ctx context.Context, conn *client.Conn) (*v1alpha1.ApplyResponse, error) {
				return v1alpha1.NewObjectsClient(conn).Delete(ctx, &v1alpha1.DeleteRequest{Keys: req.GetKeys(), DryRun: true})
			})
			if err != nil {
				return err
			}
			if err := confirm(cmd, show.Count(len(keys), "object")); err != nil {
				return err
			}
		}
		if *diff {
			return c.changeShown(cmd, output.Format, *dryRun, make([]catalog.Object, len(keys)), call)
		}
		return c.change(cmd, output.Format, *dryRun, func(ctx context.Context, conn *client.Conn) (*v1alpha1.ApplyResponse, error) {
			answer, err := call(ctx, conn, nil)
			if err != nil && len(keys) == 1 {
				err = missing(ctx, conn, keys[0], err)
			}
			return answer, err
		})
	}
	return cmd
}

// keysToDelete are the keys of the arguments, or of the objects in files.
func keysToDelete(cmd *cobra.Command, args, names []string, namespace string) ([]catalog.Key, error) {
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
	}
	keys, err := kinds.ParseKeys(args, namespace)
	if err == nil && len(keys) == 0 {
		err = errors.New("name what to delete: a kind and one name or more, or files by -f")
	}
	return keys, misused(err)
}

func yesFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().BoolP("yes", "y", false, "delete without asking")
}

// onTerminal tells whether somebody can be asked.
func onTerminal(cmd *cobra.Command) bool {
	f, ok := cmd.InOrStdin().(*os.File)
	return ok && show.ScreenOf(f).Terminal
}

// confirm asks whether to delete something; the error says that the answer is no.
func confirm(cmd *cobra.Command, what string) error {
	if askPerson(cmd, "delete "+what+"?") {
		return nil
	}
	return errors.New("nothing was deleted; answer yes, or give --yes, to delete")
}
