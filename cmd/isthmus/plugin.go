package main

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// pluginName is the name under which kubectl runs the program for "kubectl isthmus".
const pluginName = "kubectl-isthmus"

// plugin has the command behave as a plugin of kubectl, if it is run as one: it asks the service of
// the kubeconfig's context, and help names it as its user does.
func plugin(root *cobra.Command, program string) {
	if strings.TrimSuffix(filepath.Base(program), ".exe") != pluginName {
		return
	}
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl isthmus"}
	for all := []*cobra.Command{root}; len(all) > 0; all = all[1:] {
		cmd := all[0]
		cmd.Example = strings.ReplaceAll("\n"+cmd.Example, "\n  isthmus ", "\n  kubectl isthmus ")[1:]
		all = append(all, cmd.Commands()...)
	}
}

// asPlugin tells whether a command runs as a plugin of kubectl.
func asPlugin(cmd *cobra.Command) bool { return cmd.Root().DisplayName() != "isthmus" }
