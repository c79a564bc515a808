package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"time"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/transfer"
	"github.com/isthmus-mesh/isthmus/internal/show"
	resolverservice "github.com/isthmus-mesh/isthmus/resolver-service"
)

func newStoreCopy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "copy --from FILE --to FILE",
		Short: "Copy every object of a store into another",
		Long: `Copy every object of one config store into another, then read the target back and compare.

It can be repeated, and interrupted: objects that are the same in both are left alone. Objects that only
the target has are kept, and named, unless --prune is given. An object that can't be used in the
source, that the target does not take, or that was changed while the copy ran is named, and then
the exit code is 1.`,
		Example: `  isthmus store copy --from isthmus.yaml --to consul.yaml --dry-run
  isthmus store copy --from isthmus.yaml --to consul.yaml`,
		Args: arguments(cobra.NoArgs),
	}
	from := cmd.Flags().String("from", "", "file that names the source: an isthmus.yaml, or its \"store\" alone")
	to := cmd.Flags().String("to", "", "file that names the target, likewise")
	prune := cmd.Flags().Bool("prune", false, "delete what only the target has")
	dryRun := cmd.Flags().Bool("dry-run", false, "write nothing; list what would be done")
	output := outputFlag(cmd)
	_ = cmd.MarkFlagFilename("from", "yaml", "yml")
	_ = cmd.MarkFlagFilename("to", "yaml", "yml")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if *from == "" || *to == "" {
			return misused(errors.New("--from and --to are both needed; each names a file with a store"))
		}
		pair, err := openPair(cmd, *from, *to, *dryRun)
		if err != nil {
			return err
		}
		defer pair.close()
		progress := newProgress(cmd.ErrOrStderr())
		report, err := transfer.Copy(cmd.Context(), pair.from, pair.to, transfer.Options{DryRun: *dryRun, Prune: *prune, Progress: progress.tell})
		return tellCopy(cmd, output.Format, show.CopiedOf(report, pair.fromName, pair.toName, *dryRun), err)
	}
	return cmd
}

// storePair is the two stores of a copy.
type storePair struct {
	fromName, toName string
	from, to         configstore.ReadWriter
}

func openPair(cmd *cobra.Command, fromFile, toFile string, dryRun bool) (*storePair, error) {
	source, err := loadStore(cmd, fromFile)
	target, toErr := loadStore(cmd, toFile)
	if err := errors.Join(err, toErr); err != nil {
		return nil, errReported
	}
	switch {
	case reflect.DeepEqual(source, target):
		return nil, misused(fmt.Errorf("%s and %s name the same store", fromFile, toFile))
	case source.New():
		return nil, fmt.Errorf("%s: there is no file %s; name the store that has the objects", fromFile, source.Embedded.Path)
	}
	p := &storePair{fromName: source.Name() + " (" + fromFile + ")", toName: target.Name() + " (" + toFile + ")"}
	log := warnings(cmd.ErrOrStderr())
	if p.from, err = source.Open(configstore.Scope{}, log); err != nil {
		return nil, fmt.Errorf("%s: %w", fromFile, err)
	}
	if p.to, err = openTarget(target, dryRun, log); err != nil {
		p.close()
		return nil, fmt.Errorf("%s: %w", toFile, err)
	}
	return p, nil
}

func (p *storePair) close() {
	for _, s := range []configstore.ReadWriter{p.from, p.to} {
		if s != nil {
			_ = s.Close() // what was written was acknowledged
		}
	}
}

// tellCopy prints what a copy has come to. What went wrong is said after it.
func tellCopy(cmd *cobra.Command, format show.Format, copied *v1alpha1.StoreCopy, err error) error {
	out := cmd.OutOrStdout()
	if err == nil || len(copied.GetResults())+len(copied.GetRefused()) > 0 {
		printErr := printAnswer(cmd, format, "StoreCopy", copied, func(*show.Screen) error { return show.Copy(out, copied) })
		if err = errors.Join(err, printErr); err == nil && !copied.GetComplete() {
			err = errReported
		}
	}
	if cmd.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return errors.New("interrupted; what was written stands: run it again to go on")
	}
	return err
}

// progress tells a person how far a copy has come, if it takes long.
type progress struct {
	to   io.Writer
	next time.Time
}

const progressEvery = 2 * time.Second

func newProgress(to io.Writer) *progress {
	return &progress{to, time.Now().Add(progressEvery)}
}

func (p *progress) tell(done, of int) {
	if now := time.Now(); now.After(p.next) && done < of {
		p.next = now.Add(progressEvery)
		fmt.Fprintf(p.to, "%d of %d objects written\n", done, of)
	}
}

// openTarget opens the store that is written. A dry run makes no store that is not there.
func openTarget(target resolverservice.Store, dryRun bool, log *slog.Logger) (configstore.ReadWriter, error) {
	if dryRun && target.New() {
		return nothing{}, nil
	}
	return target.Open(configstore.Scope{}, log)
}

// nothing is a store that is yet to be made: what a dry run finds there.
type nothing struct{ configstore.ReadWriter }

// List finds nothing.
func (nothing) List(context.Context) ([]configstore.Stored, []configstore.Refusal, error) {
	return nil, nil, nil
}

// Close has nothing to do.
func (nothing) Close() error { return nil }
