package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/files"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newApply(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "apply -f FILE",
		SuggestFor: []string{"create", "replace", "set"},
		Short:      "Write objects, all of them or none",
		Long: `Write the objects of files, all of them or none. It returns once lookups follow the change.

An object with a metadata.revision, as "isthmus get" prints it, is written only if the store still
has it at that revision: nobody's change is written over unseen. If one is not, nothing is written.

With --diff each object that changes is shown as it is and as it will be, and then just that is
written, unless somebody changes one of them in between. With --dry-run nothing is written, and the
lookups that would end in another way are listed.`,
		Example: `  isthmus apply -f objects.yaml
  isthmus apply -f objects/ -f more.yaml --diff --dry-run
  generate | isthmus apply -f -`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toWrite)
	output := outputFlag(cmd)
	names := fileFlag(cmd)
	dryRun, inParts := dryRunFlag(cmd), inPartsFlag(cmd)
	diff := diffFlag(cmd)
	force := cmd.Flags().Bool("force", false, "write whatever the store holds by now; metadata.revision is not looked at")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		set, err := readFiles(cmd, *names, c.clusters(cmd))
		if err != nil {
			return err
		}
		show.WarnOfRoots(cmd.ErrOrStderr(), set.Objects, time.Now())
		show.WarnOfGateways(cmd.ErrOrStderr(), set.Objects)
		req := &v1alpha1.ApplyRequest{DryRun: *dryRun, InParts: *inParts}
		for i, object := range set.Objects {
			o := &v1alpha1.ApplyObject{Json: api.EncodeJSON(object)}
			if !*force {
				o.IfRevision = set.Revisions[i]
			}
			req.Objects = append(req.Objects, o)
		}
		call := func(ctx context.Context, conn *client.Conn, shown *v1alpha1.ApplyResponse) (*v1alpha1.ApplyResponse, error) {
			defer patience(cmd.ErrOrStderr(), len(req.GetObjects()))()
			if *diff && shown == nil {
				return v1alpha1.NewObjectsClient(conn).Apply(ctx, &v1alpha1.ApplyRequest{Objects: req.GetObjects(), DryRun: true, WithHeld: true})
			}
			pin(shown, func(i int, revision string) { req.Objects[i].IfRevision = revision })
			return v1alpha1.NewObjectsClient(conn).Apply(ctx, req)
		}
		if *diff {
			return c.changeShown(cmd, output.Format, *dryRun, set.Objects, call)
		}
		return c.change(cmd, output.Format, *dryRun, func(ctx context.Context, conn *client.Conn) (*v1alpha1.ApplyResponse, error) {
			return call(ctx, conn, nil)
		})
	}
	return cmd
}

// changeShown shows what a change will come to, and then makes just that. Objects are what there will
// be, in the order of the request; nil for one that is deleted. The call is first a dry run that
// answers with what is held, and then the change, with that answer.
func (c *connection) changeShown(cmd *cobra.Command, output show.Format, dryRun bool, objects []catalog.Object,
	call func(context.Context, *client.Conn, *v1alpha1.ApplyResponse) (*v1alpha1.ApplyResponse, error),
) error {
	ask := func(shown *v1alpha1.ApplyResponse) (answer *v1alpha1.ApplyResponse, err error) {
		err = c.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
			if shown == nil {
				if err := announce(ctx, cmd, conn); err != nil {
					return err
				}
			}
			answer, err = call(ctx, conn, shown)
			return err
		})
		return answer, err
	}
	answer, err := ask(nil)
	if err != nil {
		return err
	}
	if err := show.AddDiffs(answer, objects); err != nil {
		return err
	}
	if out := cmd.OutOrStdout(); output == show.Table {
		if err := show.Diffs(out, answer, show.Colours(out)); err != nil {
			return err
		}
	}
	if !dryRun {
		shown := answer
		if answer, err = ask(shown); err != nil {
			return err
		}
		for i, r := range answer.GetResults() {
			r.Diff = shown.GetResults()[i].GetDiff()
		}
	}
	return printApplied(cmd, output, answer, dryRun)
}

// pin makes a request hold only for the state of the store that an answer was made of: set gives an
// object the revision that it must have. Of an object that can't be used, a store may not know the
// revision: it is replaced whatever it is.
func pin(answer *v1alpha1.ApplyResponse, set func(i int, revision string)) {
	for i, r := range answer.GetResults() {
		switch {
		case r.GetRevision() != "":
			set(i, r.GetRevision())
		case r.GetUnusable() == "":
			set(i, configstore.Absent)
		}
	}
}

// change makes a call that writes, and prints what it did.
func (c *connection) change(cmd *cobra.Command, output show.Format, dryRun bool, call func(context.Context, *client.Conn) (*v1alpha1.ApplyResponse, error)) error {
	var answer *v1alpha1.ApplyResponse
	err := c.ask(cmd, func(ctx context.Context, conn *client.Conn) (err error) {
		if err := announce(ctx, cmd, conn); err != nil {
			return err
		}
		answer, err = call(ctx, conn)
		return err
	})
	if err != nil {
		return err
	}
	return printApplied(cmd, output, answer, dryRun)
}

// announce says which cluster a command writes to, before it does, and on standard error. It
// is an error where that is not the cluster that is wanted.
func announce(ctx context.Context, cmd *cobra.Command, conn *client.Conn) error {
	cluster, err := conn.ClusterName(ctx)
	if err == nil {
		show.Say(cmd.ErrOrStderr(), "cluster %s, resolver service %s\n", cluster, conn.Service())
	}
	return err
}

func printApplied(cmd *cobra.Command, output show.Format, answer *v1alpha1.ApplyResponse, dryRun bool) error {
	answer.DryRun = dryRun
	if answer.GetCounts() == nil {
		answer.Counts = &v1alpha1.EffectCounts{}
	}
	for _, warning := range answer.GetWarnings() {
		show.Say(cmd.ErrOrStderr(), "warning: %s\n", warning)
	}
	return printAnswer(cmd, output, "Change", answer, func(w *show.Screen) error { return show.Apply(w, answer) })
}

func fileFlag(cmd *cobra.Command) *[]string {
	names := cmd.Flags().StringSliceP("filename", "f", nil, "file, directory, or - for standard input; can be given more than once")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return names
}

func inPartsFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("in-parts", false, "where the store can't write all at once, write as much as it can at a time; then each part is all or nothing")
}

func diffFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("diff", false, "show what changes in each object before it is written")
}

func dryRunFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("dry-run", false, "write nothing; list the lookups that would end in another way")
}

// clusters asks the service which clusters it knows.
func (c *connection) clusters(cmd *cobra.Command) files.Clusters {
	return func() (names []string, err error) {
		err = c.ask(cmd, func(ctx context.Context, conn *client.Conn) error {
			own, err := conn.ClusterName(ctx)
			if err != nil {
				return err
			}
			answer, err := v1alpha1.NewObjectsClient(conn).Get(ctx, &v1alpha1.GetRequest{Key: wire.Key(catalog.Key{Kind: catalog.KindCluster})})
			names = append(names, own)
			for _, o := range answer.GetObjects() {
				names = append(names, o.GetKey().GetName())
			}
			return err
		})
		return names, err
	}
}

// readFiles reads the objects that -f names.
func readFiles(cmd *cobra.Command, names []string, clusters files.Clusters) (*files.Set, error) {
	if len(names) == 0 {
		return nil, misused(errors.New("-f is missing; name a file, a directory, or - for standard input"))
	}
	set, err := files.Read(names, cmd.InOrStdin(), clusters)
	for _, note := range set.Notes {
		show.Say(cmd.ErrOrStderr(), "note: %s\n", note)
	}
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), show.Lines(err))
		return nil, errReported
	}
	if len(set.Objects) == 0 {
		return nil, fmt.Errorf("no object in %s", strings.Join(names, ", "))
	}
	return set, nil
}
