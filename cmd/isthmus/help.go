package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/isthmus-mesh/isthmus/internal/show"
)

// The groups of commands in the help.
const (
	toSee     = "see"
	toChange  = "change"
	toConnect = "connect"
	toRun     = "run"
)

// places has the group of each command, and the page of the docs that goes with it. A subcommand without
// a line has its parent's page.
var places = map[string]struct{ group, page string }{
	"apps":     {toSee, "reference/instances.md"},
	"calls":    {toSee, "how-to/guard.md"},
	"check":    {toSee, "reference/checks.md"},
	"console":  {toSee, "how-to/console.md"},
	"describe": {toSee, "how-to/troubleshooting.md"},
	"events":   {toSee, "how-to/troubleshooting.md"},
	"explain":  {toSee, "how-to/when-a-call-fails.md"},
	"get":      {toSee, "reference/objects.md"},
	"graph":    {toSee, "how-to/when-a-call-fails.md"},
	"guard":    {toSee, "how-to/guard.md"},
	"history":  {toSee, "reference/objects.md"},
	"mcp":      {toSee, "how-to/when-a-call-fails.md"},
	"resolve":  {toSee, "how-to/when-a-call-fails.md"},
	"sidecars": {toSee, "reference/sidecar.md"},
	"status":   {toSee, "how-to/monitoring.md"},
	"tap":      {toSee, "how-to/when-a-call-fails.md"},
	"top":      {toSee, "how-to/when-a-call-fails.md"},
	"trust":    {toSee, "how-to/trust.md"},

	"analyze":  {toChange, "reference/objects.md"},
	"apply":    {toChange, "reference/objects.md"},
	"delete":   {toChange, "reference/objects.md"},
	"edit":     {toChange, "reference/objects.md"},
	"policies": {toChange, "how-to/policies.md"},
	"shift":    {toChange, "how-to/canary.md"},
	"suggest":  {toChange, "how-to/guard.md"},
	"validate": {toChange, "reference/objects.md"},

	"context":    {toConnect, "reference/cli.md"},
	"dev":        {toConnect, "how-to/laptop.md"},
	"link":       {toConnect, "how-to/connect-clusters.md"},
	"link trust": {"", "how-to/trust.md"},
	"options":    {toConnect, "reference/cli.md"},

	"actors":         {toRun, "how-to/actors.md"},
	"completion":     {toRun, "reference/cli.md"},
	"demo":           {toRun, "README.md"},
	"help":           {toRun, "README.md"},
	"man":            {toRun, "reference/cli.md"},
	"serve":          {toRun, "reference/service.md"},
	"store":          {toRun, "how-to/choose-a-store.md"},
	"support-bundle": {toRun, "how-to/troubleshooting.md"},
	"version":        {toRun, "how-to/upgrade.md"},
}

// pageOf is the page of a command below docs/.
func pageOf(cmd *cobra.Command) string {
	for ; cmd.HasParent(); cmd = cmd.Parent() {
		_, path, _ := strings.Cut(cmd.CommandPath(), cmd.Root().DisplayName()+" ")
		if at, ok := places[path]; ok {
			return at.page
		}
	}
	return "README.md"
}

// arrange puts the commands of a root into groups, and has the help say less: without the flags that
// reach a service, which "isthmus options" lists.
func arrange(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: toSee, Title: "See what is there, and why a call fails:"},
		&cobra.Group{ID: toChange, Title: "Change what apps may call, and by which way:"},
		&cobra.Group{ID: toConnect, Title: "Connect clusters, and this command to a service:"},
		&cobra.Group{ID: toRun, Title: "Run and maintain a service:"},
	)
	root.SetHelpCommandGroupID(toRun)
	root.SetCompletionCommandGroupID(toRun)
	for _, cmd := range root.Commands() {
		cmd.GroupID = places[cmd.Name()].group
	}
	root.SetUsageFunc(usage)
}

// reachesService marks flags that say which service a command asks, and as whom.
const reachesService = "isthmus.dev/reaches-service"

// markNew returns what marks the flags that a set has then and has not yet.
func markNew(flags *pflag.FlagSet) (mark func()) {
	before := map[*pflag.Flag]bool{}
	flags.VisitAll(func(f *pflag.Flag) { before[f] = true })
	return func() {
		flags.VisitAll(func(f *pflag.Flag) {
			if !before[f] {
				f.Annotations = map[string][]string{reachesService: nil}
			}
		})
	}
}

// flagUsages are the flags of a command that reach a service, or its others.
func flagUsages(cmd *cobra.Command, service bool) string {
	some := pflag.NewFlagSet("", pflag.ContinueOnError)
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, marked := f.Annotations[reachesService]; marked == service {
			some.AddFlag(f)
		}
	})
	return some.FlagUsages()
}

// usage writes what stands below the text of a command's help.
func usage(cmd *cobra.Command) error {
	w := cmd.OutOrStderr()
	fmt.Fprint(w, "Usage:\n")
	for form := range strings.SplitSeq(cmd.UseLine(), " | ") {
		if cmd.Runnable() && form != "" {
			fmt.Fprintf(w, "  %s\n", cmp.Or(wholeForm(cmd, form), form))
		}
	}
	if cmd.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, group := range append(cmd.Groups(), &cobra.Group{Title: "Commands:"}) {
		commandList(w, cmd, group)
	}
	if own := flagUsages(cmd, false); own != "" {
		fmt.Fprintf(w, "\nFlags:\n%s", own)
	}
	name := cmd.Root().DisplayName()
	if flagUsages(cmd, true) != "" {
		fmt.Fprintf(w, "\nWhich service it asks, and as whom, say the flags of %q, such as --context.\n", name+" options")
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nMore on a command: %s COMMAND --help\n", cmd.CommandPath())
	}
	_, err := fmt.Fprintf(w, "\nDocs: %s\n", show.Docs(pageOf(cmd)))
	return err
}

// wholeForm is a form of usage after the first, which begins with the command's name, too.
func wholeForm(cmd *cobra.Command, form string) string {
	if strings.HasPrefix(form, cmd.CommandPath()) || strings.HasPrefix(form, cmd.Root().DisplayName()) {
		return form
	}
	return cmd.CommandPath() + " " + form
}

func commandList(w io.Writer, cmd *cobra.Command, group *cobra.Group) {
	subs := slices.DeleteFunc(slices.Clone(cmd.Commands()), func(sub *cobra.Command) bool {
		return sub.GroupID != group.ID || !sub.IsAvailableCommand() && sub.Name() != "help"
	})
	if len(subs) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", group.Title)
	for _, sub := range subs {
		fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
	}
}

// newOptions lists the flags of all commands that ask a service.
func newOptions(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "options",
		Short: "List the flags that say which service to ask, and as whom",
		Long: `List the flags of every command that asks a service. They say which service, as whom to ask it, and
how long to wait. "isthmus context" keeps them under a name. Flags win over a context, and a context
over the environment. A context's cluster counts for its own service alone: with --server or --socket
another may answer.

One of --socket, --sentry, --identity, --insecure and a kubeconfig is needed, except on the machine of
the service. There a command finds the operator socket by itself.`,
		Example: `  isthmus options
  isthmus status --context west
  isthmus status --server 10.0.0.5:7400 --identity ~/.isthmus`,
		Args: arguments(cobra.NoArgs),
	}
	all := &cobra.Command{}
	c.flags(all, toRead)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		_, err := fmt.Fprint(cmd.OutOrStdout(), flagUsages(all, true))
		return err
	}
	return cmd
}
