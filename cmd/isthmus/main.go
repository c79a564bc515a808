// Command isthmus is the resolver service and the command line for it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/isthmus-mesh/isthmus/cmd/isthmus/internal/client"
	"github.com/isthmus-mesh/isthmus/internal/show"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

// Exit codes.
const (
	done   = 0
	failed = 1 // refused, not found or failed
	misuse = 2 // wrong use
	faulty = 2 // isthmus check: something fails
)

func main() { os.Exit(run()) }

// run ends at the first signal in an orderly way, and at the second at once.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a signal does what it does by default
	root := newRoot()
	plugin(root, os.Args[0])
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return done
	case errors.Is(err, errReported):
		return failed
	case errors.Is(err, errFaults):
		return faulty
	case errors.Is(err, client.ErrUse):
		fmt.Fprintf(root.ErrOrStderr(), "isthmus: %s\n", show.Lines(err))
		return misuse
	}
	fmt.Fprintf(root.ErrOrStderr(), "isthmus: %s\n", show.Lines(err))
	return failed
}

// errReported is the error of a command that has already said why it failed.
var errReported = errors.New("reported")

// misused makes an error one of wrong use.
func misused(err error) error {
	if err == nil || errors.Is(err, client.ErrUse) {
		return err
	}
	return fmt.Errorf("%w: %w", client.ErrUse, err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "isthmus",
		Short: "Call Dapr apps in any cluster by their app-id",
		Long: `isthmus runs the resolver service and is the command line for it.

An app is namespace/app-id or app-id.namespace, wherever one is named. Most answers have -o json, -o
yaml and -o jsonpath={...} for programs.

Exit codes: 0 done; 1 refused, not found or failed; 2 wrong use.`,
		Example: `  isthmus serve -c isthmus.yaml
  isthmus apply -f objects.yaml --insecure
  isthmus explain --from shop/checkout orders --insecure`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          unknownCommand,
		Args:          cobra.ArbitraryArgs,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
			return unknownCommand(cmd, args) // whose flags these are
		}
		return misused(fmt.Errorf("%w; see %s --help", err, cmd.CommandPath()))
	})
	root.Flags().BoolP("version", "v", false, "version of isthmus")
	c := &connection{}
	root.AddCommand(newServe(), newActors(), newApply(c), newGet(c), newEdit(c), newDelete(c), newHistory(c), newValidate(), newAnalyze(c),
		newResolve(c), newExplain(c), newStatus(c), newCheck(c), newApps(c), newSidecars(c), newEvents(c), newCalls(c), newTop(c), newTap(c), newShift(c), newGraph(c), newSuggest(c), newGuard(c), newPolicies(c), newTrust(c), newLink(c), newDev(c), newConsole(c), newSupportBundle(c), newContext(), newStore(), newDemo(), newMan(), newVersion(c),
		newDescribe(c), newMCP(c), newOptions(c))
	arrange(root)
	return root
}

// unknownCommand is what runs when no command was named.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if asked, _ := cmd.Flags().GetBool("version"); asked {
		_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
		return err
	}
	if len(args) == 0 {
		cmd.SetOut(cmd.ErrOrStderr())
		return errors.Join(cmd.Help(), misused(errors.New("no command given")))
	}
	var names []string
	for _, sub := range cmd.Commands() {
		for _, below := range sub.Commands() {
			if below.Name() == args[0] && below.Name() != "list" && below.Name() != "set" {
				return misused(fmt.Errorf("unknown command %q; did you mean %q?", args[0], sub.Name()+" "+args[0]))
			}
		}
		if slices.Contains(sub.SuggestFor, args[0]) {
			return misused(fmt.Errorf("unknown command %q; did you mean %q?", args[0], sub.Name()))
		}
		names = append(names, sub.Name())
	}
	return misused(fmt.Errorf("unknown command %q; %s", args[0], strict.Hint(args[0], names, "see "+cmd.CommandPath()+" --help")))
}

// arguments makes errors of a check of arguments errors of wrong use.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check(cmd, args) == nil {
			return nil
		}
		wanted := required(cmd.Use)
		if from := cmd.Flag("from"); from != nil && !from.Changed && len(args) == 2 {
			return misused(fmt.Errorf("name the calling app by --from: %s --from %s %s", cmd.CommandPath(), namespaced(args[0]), args[1]))
		}
		if len(args) < len(wanted) {
			return misused(fmt.Errorf("%s is missing; usage: %s", wanted[len(args)], cmd.UseLine()))
		}
		last := args[len(args)-1]
		if _, err := os.Stat(last); err == nil && cmd.Flags().Lookup("filename") != nil {
			return misused(fmt.Errorf("%q stands alone; name files by -f %s", last, last))
		}
		return misused(fmt.Errorf("%q is one argument too many; usage: %s", last, cmd.UseLine()))
	}
}

// namespaced is an app as --from takes it.
func namespaced(app string) string {
	if strings.Contains(app, "/") {
		return app
	}
	return "NAMESPACE/" + app
}

// required are the arguments that the first form of a usage line asks for, such as KIND: its words
// but for the command, flags with their values, and what stands in brackets.
func required(use string) (names []string) {
	use, _, _ = strings.Cut(use, " | ")
	words := strings.Fields(use)[1:]
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case strings.HasPrefix(word, "-"):
			i++
		case !strings.HasPrefix(word, "[") || !strings.HasSuffix(word, "]"):
			names = append(names, word)
		}
	}
	return names
}
