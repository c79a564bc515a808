package main

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kinds"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newGet(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "get KIND [NAME...]",
		SuggestFor: []string{"list", "ls", "show"},
		Short:      "Print objects",
		Long: `Print the objects of a kind, or some of them by name.

KIND is ` + kinds.List() + `,
in upper or lower case. kubectl takes the same short names. A NAME is namespace/name or
name.namespace; with -n it is the name alone. A Cluster has no namespace. KIND/NAME is one argument
in place of two, as -o name prints it.

What -o yaml and -o json print has the revision of each object in its metadata. Change it and apply
it: apply refuses if somebody else has changed the object since. In files that Git keeps a revision
is out of date with the first apply, so --export leaves it out, and objects that are derived from
others. Apply then writes whatever the store has.

With --watch it goes on until you end it: each object that is written or deleted has a line more. JSON
is then an ObjectChange in each line.`,
		Example: `  isthmus get aep
  isthmus get aep checkout -n shop -o yaml
  isthmus get all -n shop --export > shop.yaml
  isthmus get clusters -o jsonpath='{.items[*].metadata.name}'
  isthmus get aep -A --watch
  isthmus get axp -n old -o name | xargs isthmus delete`,
		Args:              arguments(cobra.MinimumNArgs(1)),
		ValidArgsFunction: c.completeObject(true),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd, string(show.Names))
	namespace := c.namespaceFlags(cmd, "objects")
	export := cmd.Flags().Bool("export", false, "as files for Git have them: YAML, without revisions and without derived objects")
	watch := cmd.Flags().BoolP("watch", "w", false, "go on with changes to come")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		in, err := namespace()
		if err != nil {
			return err
		}
		keys, err := keysToGet(args, in)
		if err != nil {
			return misused(err)
		}
		if *export && !cmd.Flags().Changed("output") {
			output.Format = show.YAML
		}
		if *watch {
			if len(keys) > 1 || *export {
				return misused(errors.New("--watch is for one kind or one object, without --export"))
			}
			return watchObjects(c, cmd, keys[0], output)
		}
		var objects []show.Object
		for _, key := range keys {
			some, err := c.get(cmd, key)
			if err != nil {
				return err
			}
			objects = append(objects, some...)
		}
		if *export {
			objects = exported(cmd, objects)
		}
		printNotices(c, cmd, keys[0], objects)
		if len(objects) == 0 && output.Format == show.Table {
			printNone(c, cmd, "objects", catalog.App{Namespace: keys[0].Namespace})
		}
		return show.Objects(show.ScreenOf(cmd.OutOrStdout()), output.Format, objects, keys[0].Name != "" && len(keys) == 1)
	}
	return cmd
}

// exported are objects as files for Git have them. What is derived stays with the documents that it
// is derived from.
func exported(cmd *cobra.Command, all []show.Object) []show.Object {
	var kept []show.Object
	for _, o := range all {
		if strings.HasPrefix(o.Stored, "from ") {
			show.Say(cmd.ErrOrStderr(), "left out: %s, which is derived %s\n", o.Key(), o.Stored)
			continue
		}
		o.Revision = ""
		kept = append(kept, o)
	}
	return kept
}

// printNotices says of which objects the store has another version that can't be used.
func printNotices(c *connection, cmd *cobra.Command, key catalog.Key, objects []show.Object) {
	standing := 0
	for i := range objects {
		if objects[i].Refused != "" {
			standing++
			show.Say(cmd.ErrOrStderr(), "%s\n", objects[i].Notice())
		}
	}
	if n := printRefused(c, cmd, key) - standing; n > 0 {
		show.Say(cmd.ErrOrStderr(), "not shown: what can't be used, of which the store has %d; isthmus status names it\n", n)
	}
}

// get gets the objects that a key names.
func (c *connection) get(cmd *cobra.Command, key catalog.Key) (objects []show.Object, err error) {
	err = c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
		answer, err := v1alpha1.NewObjectsClient(conn).Get(ctx, &v1alpha1.GetRequest{Key: wire.Key(key)})
		if err != nil {
			return missing(ctx, conn, key, err)
		}
		objects, err = show.ObjectsOf(answer)
		return err
	})
	return objects, err
}

// printRefused is how many objects the service can't use, which a list does not have: so that
// nobody takes them for deleted. It is 0 where one object was asked for, whose own error says
// it, and where the service does not tell.
func printRefused(c *connection, cmd *cobra.Command, key catalog.Key) (n int) {
	if key.Name != "" {
		return 0
	}
	answer, _ := c.status(cmd)
	return len(answer.GetRefused())
}

// keysToGet are the keys that the arguments name; one without a name lists.
func keysToGet(args []string, namespace string) ([]catalog.Key, error) {
	if len(args) > 1 || strings.Contains(args[0], "/") {
		return kinds.ParseKeys(args, namespace)
	}
	kind, err := kinds.Parse(args[0])
	if !kind.Namespaced() && kind != kinds.All {
		namespace = ""
	}
	return []catalog.Key{{Kind: kind, Namespace: namespace}}, err
}

// objectArgument is the check of arguments that name one object: KIND NAME or KIND/NAME.
func objectArgument(cmd *cobra.Command, args []string) error {
	if len(args) == 1 && strings.Contains(args[0], "/") {
		return nil
	}
	return arguments(cobra.ExactArgs(2))(cmd, args)
}

// oneKey is the key of a command that is about one object.
func oneKey(args []string, namespace string) (catalog.Key, error) {
	keys, err := kinds.ParseKeys(args, namespace)
	if err != nil {
		return catalog.Key{}, misused(err)
	}
	return keys[0], nil
}
