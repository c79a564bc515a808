package main

import (
	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/files"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newAnalyze(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "analyze [-f FILE]",
		Short: "Find names that nobody has, and routes and exports that lead nowhere",
		Long: `Find probable mistakes in objects that are right by themselves: a name that nobody has, a route that is never taken, an export that lets nobody in. With -f it looks at the objects of
files as if they were applied, and writes nothing. Without, it looks at all that are stored.

A warning is most likely a mistake, and "isthmus apply" prints it too. A note may well be meant,
as when an app is still to be started. With a warning the exit code is 1.`,
		Example: `  isthmus analyze
  isthmus analyze -f objects.yaml
  isthmus analyze -o json`,
		Args: arguments(cobra.NoArgs),
	}
	c.flags(cmd, toRead)
	output := outputFlag(cmd)
	names := fileFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		req, set := &v1alpha1.AnalyzeRequest{}, &files.Set{}
		if len(*names) > 0 {
			var err error
			if set, err = readFiles(cmd, *names, c.clusters(cmd)); err != nil {
				return err
			}
			for _, object := range set.Objects {
				req.Objects = append(req.Objects, api.EncodeJSON(object))
			}
		}
		answer, err := askFor(c, cmd, v1alpha1.NewObjectsClient, v1alpha1.ObjectsClient.Analyze, req)
		if err != nil {
			return err
		}
		show.Analyzed(answer, set.Objects)
		err = printAnswer(cmd, output.Format, "Analysis", answer, func(w *show.Screen) error { show.Analysis(w, answer); return nil })
		if err == nil && answer.GetWarnings() > 0 {
			err = errReported
		}
		return err
	}
	return cmd
}
