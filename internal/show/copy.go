package show

import (
	"fmt"
	"io"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/transfer"
)

// Copied is what a copy of a store has come to, as programs read it.
type Copied struct {
	From     string       `json:"from" yaml:"from"`
	To       string       `json:"to" yaml:"to"`
	DryRun   bool         `json:"dryRun" yaml:"dryRun"`
	Complete bool         `json:"complete" yaml:"complete"` // all is in the target, or would be
	Verified bool         `json:"verified" yaml:"verified"`
	Counts   CopyCounts   `json:"counts" yaml:"counts"`
	Results  []CopyResult `json:"results" yaml:"results"`
	Refused  []Refused    `json:"refused" yaml:"refused"`
	Moved    []ObjectName `json:"moved" yaml:"moved"`
	Foreign  []Refused    `json:"foreign" yaml:"foreign"`
}

// CopyCounts are the numbers of objects by result.
type CopyCounts struct {
	Created   int `json:"created" yaml:"created"`
	Changed   int `json:"changed" yaml:"changed"`
	Unchanged int `json:"unchanged" yaml:"unchanged"`
	Deleted   int `json:"deleted" yaml:"deleted"`
	Kept      int `json:"kept" yaml:"kept"`
	Failed    int `json:"failed" yaml:"failed"`
	Pending   int `json:"pending" yaml:"pending"`
}

// ObjectName names an object.
type ObjectName struct {
	Kind      string `json:"kind" yaml:"kind"`
	Namespace string `json:"namespace" yaml:"namespace"`
	Name      string `json:"name" yaml:"name"`
}

// CopyResult is what became of one object.
type CopyResult struct {
	ObjectName `yaml:",inline"`
	Result     string `json:"result" yaml:"result"`
	Error      string `json:"error" yaml:"error"`
}

// Refused is something in a store that can't be used.
type Refused struct {
	Source string `json:"source" yaml:"source"`
	Error  string `json:"error" yaml:"error"`
}

// CopiedOf makes a report one for programs.
func CopiedOf(r *transfer.Report, from, to string, dryRun bool) Copied {
	c := Copied{
		From: from, To: to, DryRun: dryRun, Verified: r.Verified,
		Counts: CopyCounts{
			r.Count(transfer.Created), r.Count(transfer.Changed), r.Count(transfer.Unchanged), r.Count(transfer.Deleted),
			r.Count(transfer.Kept), r.Count(transfer.Failed), r.Count(transfer.Pending),
		},
		Results: make([]CopyResult, len(r.Items)), Refused: RefusedOf(r.Refused), Moved: make([]ObjectName, len(r.Moved)), Foreign: RefusedOf(r.Foreign),
	}
	for i := range r.Items {
		c.Results[i] = CopyResult{ObjectName: objectName(r.Items[i].Key), Result: string(r.Items[i].Result)}
		if err := r.Items[i].Err; err != nil {
			c.Results[i].Error = err.Error()
		}
	}
	for i, key := range r.Moved {
		c.Moved[i] = objectName(key)
	}
	c.Complete = c.Counts.Failed+c.Counts.Pending+len(c.Refused)+len(c.Moved) == 0 && (dryRun || r.Verified)
	return c
}

// RefusedOf lists what can't be used.
func RefusedOf(all []configstore.Refusal) []Refused {
	list := make([]Refused, len(all))
	for i, r := range all {
		list[i] = Refused{r.Where, r.Err.Error()}
	}
	return list
}

func objectName(key catalog.Key) ObjectName {
	return ObjectName{string(key.Kind), key.Namespace, key.Name}
}

// String is how people read the name.
func (n ObjectName) String() string {
	if n.Namespace == "" {
		return n.Kind + " " + n.Name
	}
	return n.Kind + " " + n.Namespace + "/" + n.Name
}

// Copy writes what a copy has come to: in a dry run every object that is not the same
// already, otherwise the numbers, and what somebody has to look at.
func Copy(w io.Writer, c Copied) error {
	suffix := ""
	if c.DryRun {
		suffix = " (dry run)"
	}
	for _, r := range c.Results {
		switch result := transfer.Result(r.Result); {
		case result == transfer.Failed:
			Say(w, "%s failed: %s\n", r, r.Error)
		case result == transfer.Kept:
			Say(w, "%s kept: only the target has it, or only there it can be used%s\n", r, suffix)
		case result == transfer.Deleted || c.DryRun && result != transfer.Unchanged:
			Say(w, "%s %s%s\n", r, result, suffix)
		}
	}
	for _, r := range c.Refused {
		Say(w, "refused in the source, and not copied: %s\n", r.Error)
	}
	for _, r := range c.Foreign {
		Say(w, "no object, left alone in the target: %s\n", r.Source)
	}
	for _, name := range c.Moved {
		Say(w, "%s was changed in the source meanwhile: run the copy again\n", name)
	}
	n := c.Counts
	Say(w, "%s to %s%s: %s\n", c.From, c.To, suffix, numbers(n))
	switch {
	case c.Verified:
		Say(w, "verified: the target was read back, and has every object that did not fail as the source has it\n")
	case !c.DryRun:
		Say(w, "not verified\n")
	}
	return nil
}

// numbers are the results that there are, with how many.
func numbers(n CopyCounts) string {
	text := fmt.Sprintf("%d created, %d changed, %d unchanged", n.Created, n.Changed, n.Unchanged)
	for _, more := range []struct {
		n    int
		what string
	}{{n.Deleted, "deleted"}, {n.Kept, "kept"}, {n.Failed, "failed"}, {n.Pending, "not written yet"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return text
}
