package show

import (
	"cmp"
	"encoding/json"
	"io"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/internal/contexts"
)

// Contexts writes the contexts of a file.
func Contexts(w io.Writer, f Format, file *contexts.File) error {
	if f == Table {
		return contextTable(w, file)
	}
	var all []*v1alpha1.Context
	for _, c := range file.Contexts {
		one := &v1alpha1.Context{}
		text, err := json.Marshal(c)
		if err == nil {
			err = protojson.Unmarshal(text, one) // both have the same names
		}
		if err != nil {
			return err
		}
		one.Current = c.Name == file.Current
		all = append(all, one)
	}
	return PrintList(w, f, "ContextList", all)
}

func contextTable(w io.Writer, file *contexts.File) error {
	var table [][]string
	for _, c := range file.Contexts {
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
		if c.Name == file.Current {
			current = "*"
		}
		table = append(table, []string{current, c.Name, at, c.Cluster, as})
	}
	return rows(w, []string{"CURRENT", "NAME", "SERVER", "CLUSTER", "AS"}, table)
}
