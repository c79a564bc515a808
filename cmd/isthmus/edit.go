package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newEdit(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "edit KIND NAME",
		Short: "Change an object in your editor",
		Long: `Open an object in your editor (VISUAL or EDITOR, otherwise vi), and apply it once you have saved it
and left. A text that is not changed is not applied.

If somebody else changes the object meanwhile, or the text has a mistake, nothing is written and
your text is kept in a file that is named.`,
		Example: `  isthmus edit aep checkout -n shop
  EDITOR=nano isthmus edit cluster east`,
		Args:              objectArgument,
		ValidArgsFunction: c.completeObject(false),
	}
	c.flags(cmd, toWrite)
	namespace := c.namespaceFlag(cmd, "namespace of the object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := oneKey(args, *namespace)
		if err != nil {
			return err
		}
		objects, err := c.get(cmd, key)
		if err != nil {
			return err
		}
		if len(objects) != 1 {
			return fmt.Errorf("the answer has %d objects and not just %s; is the service of another version than this isthmus?", len(objects), key)
		}
		if o := &objects[0]; o.Refused != "" {
			return fmt.Errorf("%s; correct what is stored, or write another version by isthmus apply", o.Notice())
		}
		return editObject(c, cmd, objects[0])
	}
	return cmd
}

// editObject has the user edit an object and applies what came of it.
func editObject(c *connection, cmd *cobra.Command, object show.Object) error {
	before := api.EncodeYAMLAt(object.Object, object.Revision)
	path, after, err := editText(cmd, before)
	if err != nil {
		return err
	}
	if bytes.Equal(before, after) {
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing was changed")
		return os.Remove(path)
	}
	edited, err := editedObject(path, after, object.Key())
	if err != nil {
		return fmt.Errorf("%w\nyour text is kept: mend it, then isthmus apply -f %s", err, path)
	}
	show.WarnOfRoots(cmd.ErrOrStderr(), []catalog.Object{edited}, time.Now())
	show.WarnOfGateways(cmd.ErrOrStderr(), []catalog.Object{edited})
	err = c.change(cmd, show.Table, false, func(ctx context.Context, conn *client.Conn) (*v1alpha1.ApplyResponse, error) {
		return v1alpha1.NewObjectsClient(conn).Apply(ctx, &v1alpha1.ApplyRequest{
			Objects: []*v1alpha1.ApplyObject{{Json: api.EncodeJSON(edited), IfRevision: object.Revision}},
		})
	})
	switch {
	case errors.Is(err, client.ErrConflict):
		return fmt.Errorf("%w\nyour text is kept in %s: isthmus apply -f %[2]s --force --diff --dry-run shows it beside what is there now; without --dry-run it is written over that", err, path)
	case err != nil:
		return fmt.Errorf("%w\nyour text is kept: isthmus apply -f %s writes it", err, path)
	}
	return os.Remove(path)
}

// editText has the user edit a text in a file, which is left to the caller.
func editText(cmd *cobra.Command, text []byte) (path string, edited []byte, err error) {
	f, err := os.CreateTemp("", "isthmus-*.yaml") // 0600
	if err != nil {
		return "", nil, err
	}
	path = f.Name()
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", nil, errors.Join(err, os.Remove(path))
	}
	// A command with arguments, as git and kubectl take it. It is not ended with the
	// context: a signal is the editor's own affair.
	editor := cmp.Or(os.Getenv("VISUAL"), os.Getenv("EDITOR"), "vi")
	run := exec.Command("sh", "-c", editor+` "$1"`, "sh", path)
	run.Stdin, run.Stdout, run.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	if err := run.Run(); err != nil {
		return "", nil, fmt.Errorf("editor %q: %w; nothing was written, and your text is kept in %s; name another editor by EDITOR", editor, err, path)
	}
	edited, err = os.ReadFile(path)
	return path, edited, err
}

// editedObject reads the one object that a text must have.
func editedObject(path string, text []byte, key catalog.Key) (catalog.Object, error) {
	manifests, mistakes := api.DecodeManifests(path, text)
	if err := mistakes.Err(); err != nil {
		return nil, err
	}
	if len(manifests) != 1 || manifests[0].Key() != key {
		return nil, fmt.Errorf("%s: want %s and nothing else; to write other objects, use isthmus apply", path, key)
	}
	return manifests[0].Object, nil
}
