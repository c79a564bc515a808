package show

import (
	"cmp"
	"io"

	"github.com/isthmus-mesh/isthmus/internal/contexts"
)

// Context is a context for people and programs.
type Context struct {
	Current          bool `json:"current" yaml:"current"`
	contexts.Context `yaml:",inline"`
}

// ContextsOf are the contexts of a file.
func ContextsOf(f *contexts.File) []Context {
	all := []Context{}
	for _, c := range f.Contexts {
		all = append(all, Context{c.Name == f.Current, c})
	}
	return all
}

// Contexts writes contexts as a table.
func Contexts(w io.Writer, all []Context) error {
	var table [][]string
	for _, c := range all {
		current, as, at := "", c.Identity, cmp.Or(c.Server, c.Socket)
		switch {
		case c.OnKubernetes():
			as, at = "kubernetes", cmp.Or(c.KubeContext, c.Kubeconfig)
		case c.Socket != "":
			as = "local"
		case c.Sentry != "":
			as = "sentry " + c.Sentry
		case c.Insecure:
			as = "insecure"
		}
		if c.Current {
			current = "*"
		}
		table = append(table, []string{current, c.Name, at, c.Cluster, as})
	}
	return rows(w, []string{"CURRENT", "NAME", "SERVER", "CLUSTER", "AS"}, table)
}
