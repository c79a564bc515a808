package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newHistory(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history KIND NAME",
		Short: "Show what an object was before",
		Long: `Show the versions of an object that the store remembers, newest first: when each was written and
its changes (+ is new, - is gone, ~ is different). A deleted object has a history, too.

With --diff the changes are shown line by line, with -o yaml and -o json whole objects. One version
by --revision, with -o yaml, can be applied again.`,
		Example: `  isthmus history aep shop/checkout
  isthmus history aep shop/checkout --diff
  isthmus history aep shop/checkout --revision 12 -o yaml | isthmus apply -f -`,
		Args:              objectArgument,
		ValidArgsFunction: c.completeObject(false),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	namespace := c.namespaceFlag(cmd, "namespace of the object")
	most := cmd.Flags().Uint32("most", 0, "at most so many versions; 0 for all that are remembered")
	revision := cmd.Flags().String("revision", "", "only the version with this revision")
	diff := cmd.Flags().Bool("diff", false, "show what each version changed, line by line")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := oneKey(args, *namespace)
		if err != nil {
			return err
		}
		if *most > 0 && *revision != "" {
			return misused(errors.New("--most and --revision exclude each other; keep one"))
		}
		versions, err := pastObjects(c, cmd, key, *most, *revision)
		if err != nil {
			return err
		}
		if out := cmd.OutOrStdout(); *diff && output.Format == show.Table {
			return show.HistoryDiffs(out, versions, show.Colours(out))
		}
		if !*diff {
			for _, v := range versions {
				v.Diff = ""
			}
		}
		return show.History(show.ScreenOf(cmd.OutOrStdout()), output.Format, key, versions)
	}
	return cmd
}

// pastObjects gets versions of an object: the newest, or the one with a revision. It asks
// for one more than it returns, to tell what the last one changed.
func pastObjects(c *connection, cmd *cobra.Command, key catalog.Key, most uint32, revision string) (versions []*v1alpha1.PastObject, err error) {
	req := &v1alpha1.HistoryRequest{Key: wire.Key(key)}
	if most > 0 && most < math.MaxUint32 {
		req.Most = most + 1
	}
	err = c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
		answer, err := v1alpha1.NewObjectsClient(conn).History(ctx, req)
		if err != nil {
			return missing(ctx, conn, key, err)
		}
		versions = answer.GetVersions()
		return show.Compared(answer, key)
	})
	if err != nil {
		return nil, err
	}
	if most > 0 && len(versions) > int(most) {
		versions = versions[:most]
	}
	if revision == "" {
		return versions, nil
	}
	i := slices.IndexFunc(versions, func(v *v1alpha1.PastObject) bool { return v.GetRevision() == revision })
	if i < 0 {
		return nil, fmt.Errorf("%s: no revision %s is remembered; \"isthmus history\" without --revision lists those that are", key, revision)
	}
	return versions[i : i+1], nil
}
