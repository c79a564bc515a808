package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/kube"
	"github.com/isthmus-mesh/isthmus/internal/contexts"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

func newContext() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "context COMMAND",
		Short: "Name services, so that other commands need not be told how to reach them",
		Long: `Keep named services in a file: how to reach each, and as whom to ask it. Other commands use the
current context, or the one that --context or ISTHMUS_CONTEXT names. Flags win over a context.

The file is ~/.config/isthmus/contexts.yaml, or the one that ISTHMUS_CONTEXTS names.`,
		Example: `  isthmus context set west --server 10.0.0.5:7400 --cluster west --sentry 10.0.0.5:50001 --trust-anchors ca.crt
  isthmus context set here --socket data/operator-west.sock
  isthmus context set east --kube-context kind-east --cluster east
  isthmus context use west
  isthmus context list`,
		RunE: unknownCommand,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(newContextList(), newContextCurrent(), newContextUse(), newContextSet(), newContextDelete())
	return cmd
}

func newContextList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the contexts",
		Example: `  isthmus context list -o json`,
		Args:    arguments(cobra.NoArgs),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		file, err := loadContexts(cmd)
		if err != nil {
			return err
		}
		if file.Current != "" && os.Getenv("ISTHMUS_CONTEXT") == "" && os.Getenv("ISTHMUS_SERVER") != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "ISTHMUS_SERVER is set, so no command uses the current context; --context names one")
		}
		return show.Contexts(show.ScreenOf(cmd.OutOrStdout()), output.Format, file)
	}
	return cmd
}

func newContextCurrent() *cobra.Command {
	return &cobra.Command{
		Use:     "current",
		Short:   "Print the name of the current context",
		Example: `  isthmus context current`,
		Args:    arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := loadContexts(cmd)
			if err != nil {
				return err
			}
			if file.Current == "" {
				return errors.New("no context is the current one; isthmus context use makes one so")
			}
			fmt.Fprintln(cmd.OutOrStdout(), file.Current)
			return nil
		},
	}
}

func newContextUse() *cobra.Command {
	return contextCommand(&cobra.Command{
		Use:     "use NAME",
		Short:   "Make a context the current one",
		Example: `  isthmus context use west`,
	}, func(_ *cobra.Command, file *contexts.File, name string) (string, error) {
		return "is the current one", file.Use(name)
	})
}

func newContextDelete() *cobra.Command {
	return contextCommand(&cobra.Command{
		Use:     "delete NAME",
		Short:   "Delete a context; the service is not asked",
		Example: `  isthmus context delete west`,
	}, func(_ *cobra.Command, file *contexts.File, name string) (string, error) {
		return "deleted", file.Delete(name)
	})
}

func newContextSet() *cobra.Command {
	c := &connection{}
	cmd := contextCommand(&cobra.Command{
		Use:   "set NAME",
		Short: "Make a context, or change what flags say of it",
		Long: `Make a context, or change one: what no flag says stays as it was. Nothing is asked. Paths are kept
as absolute ones, and secrets stay where they are.`,
		Example: `  isthmus context set west --server 10.0.0.5:7400 --cluster west --identity ~/.isthmus/west`,
	}, func(cmd *cobra.Command, file *contexts.File, name string) (string, error) {
		one := contexts.Context{Name: name, Server: c.Server}
		if slices.Contains(file.Names(), name) {
			var err error
			if one, err = file.Find(name); err != nil {
				return "", err
			}
		}
		c.writeTo(cmd, &one)
		for _, path := range []*string{&one.Identity, &one.TrustAnchors, &one.Socket, &one.Kubeconfig} {
			if *path != "" {
				absolute, err := filepath.Abs(*path)
				if err != nil {
					return "", err
				}
				*path = absolute
			}
		}
		if err := optionsOf(one).Check(); err != nil {
			return "", err
		}
		if file.Set(one) {
			return "created; isthmus context use " + name + " makes it the current one", nil
		}
		return "changed", nil
	})
	c.serviceFlags(cmd)
	cmd.Flags().StringVar(&c.KubeContext, "kube-context", "", "context of the kubeconfig, of your own one where --kubeconfig names none")
	return cmd
}

// contextCommand changes the file of contexts, and says what became of the one that is named.
func contextCommand(cmd *cobra.Command, change func(*cobra.Command, *contexts.File, string) (string, error)) *cobra.Command {
	cmd.Args = arguments(cobra.ExactArgs(1))
	cmd.ValidArgsFunction = completeContext
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] == "" || strings.ContainsAny(args[0], " \t\n") {
			return misused(fmt.Errorf("%q is no name of a context; use letters and digits", args[0]))
		}
		file, err := loadContexts(cmd)
		if err != nil {
			return err
		}
		result, err := change(cmd, file, args[0])
		if err != nil {
			return err
		}
		if err := file.Save(); err != nil {
			return err
		}
		show.Say(cmd.OutOrStdout(), "context %s %s\n", args[0], result)
		return nil
	}
	return cmd
}

// loadContexts reads the file of contexts, and prints what is wrong with it.
func loadContexts(cmd *cobra.Command) (*contexts.File, error) {
	file, err := contexts.Load(contexts.Path())
	if err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), show.Lines(err))
		return nil, errReported
	}
	return file, nil
}

func completeContext(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	file, err := contexts.Load(contexts.Path())
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return file.Names(), cobra.ShellCompDirectiveNoFileComp
}

// completeContexts completes a saved context, or one of the kubeconfig.
func (c *connection) completeContexts(cmd *cobra.Command, _ []string, _ string) (names []string, _ cobra.ShellCompDirective) {
	if c.Kubeconfig == "" && !asPlugin(cmd) {
		names, _ = completeContext(cmd, nil, "")
	}
	of, _ := kube.Contexts(c.Kubeconfig) // without one there are no names
	return append(names, of...), cobra.ShellCompDirectiveNoFileComp
}
