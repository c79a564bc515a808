package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kinds"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newGet(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "get KIND [NAMESPACE/NAME]",
		SuggestFor: []string{"describe", "list", "ls", "show"},
		Short:      "Print objects",
		Long: `Print the objects of a kind, or one of them by name.

KIND is ` + kinds.List() + `,
in upper or lower case. kubectl takes the same short names. A Cluster has no namespace. What -o yaml and -o json print has the revision of each object in its
metadata: change it and apply it, and nobody's change is written over unseen.`,
		Example: `  isthmus get aep
  isthmus get appendpoints shop/checkout -o yaml
  isthmus get all -n shop`,
		Args:              arguments(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: c.completeObject(false),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	namespace := cmd.Flags().StringP("namespace", "n", "", "only objects of this namespace")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := keyToGet(args, *namespace)
		if err != nil {
			return misused(err)
		}
		objects, err := c.get(cmd, key)
		if err != nil {
			return err
		}
		standing := 0
		for i := range objects {
			if objects[i].Refused != "" {
				standing++
				show.Say(cmd.ErrOrStderr(), "%s\n", objects[i].Notice())
			}
		}
		if n := c.refused(cmd, key) - standing; n > 0 {
			show.Say(cmd.ErrOrStderr(), "not shown: what can't be used, of which the store has %d; isthmus status names it\n", n)
		}
		if len(objects) == 0 && output.Format == show.Table {
			fmt.Fprintln(cmd.ErrOrStderr(), "no objects")
		}
		return show.Objects(show.ScreenOf(cmd.OutOrStdout()), output.Format, objects, key.Name != "")
	}
	return cmd
}

// get gets the objects that a key names.
func (c *connection) get(cmd *cobra.Command, key catalog.Key) (objects []show.Object, err error) {
	err = c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
		answer, err := v1alpha1.NewObjectsClient(conn).Get(ctx, &v1alpha1.GetRequest{Key: wireKey(key)})
		if err != nil {
			return err
		}
		objects, err = show.ObjectsOf(answer)
		return err
	})
	return objects, err
}

// refused is how many objects the service can't use, which a list does not have: so that
// nobody takes them for deleted. It is 0 where one object was asked for, whose own error says
// it, and where the service does not tell.
func (c *connection) refused(cmd *cobra.Command, key catalog.Key) (n int) {
	if key.Name != "" {
		return 0
	}
	_ = c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
		answer, err := v1alpha1.NewStatusClient(conn).Status(ctx, &v1alpha1.StatusRequest{})
		n = len(answer.GetRefused())
		return err
	})
	return n
}

// oneKey is the key of a command that is about one object.
func oneKey(args []string) (catalog.Key, error) {
	key, err := keyToGet(args, "")
	return key, misused(err)
}

// keyToGet is the key that the arguments name; without a name it lists.
func keyToGet(args []string, namespace string) (catalog.Key, error) {
	kind, err := kinds.Parse(args[0])
	if err != nil || len(args) == 1 {
		return catalog.Key{Kind: kind, Namespace: namespace}, err
	}
	if kind == kinds.All {
		return catalog.Key{}, errors.New("a name needs a kind; \"all\" is none")
	}
	if namespace != "" {
		return catalog.Key{}, errors.New("-n and a name exclude each other; write namespace/name")
	}
	return kinds.ParseKey(kind, args[1])
}
