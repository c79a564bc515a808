package show

import (
	"fmt"
	"io"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/api/wire"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/transfer"
)

// CopiedOf is the answer that the report of a copy is.
func CopiedOf(r *transfer.Report, from, to string, dryRun bool) *v1alpha1.StoreCopy {
	count := func(result transfer.Result) uint32 { return uint32(r.Count(result)) }
	c := &v1alpha1.StoreCopy{
		From: from, To: to, DryRun: dryRun, Verified: r.Verified,
		Counts: &v1alpha1.CopyCounts{
			Created: count(transfer.Created), Changed: count(transfer.Changed), Unchanged: count(transfer.Unchanged), Deleted: count(transfer.Deleted),
			Kept: count(transfer.Kept), Failed: count(transfer.Failed), Pending: count(transfer.Pending),
		},
		Refused: refused(r.Refused), Foreign: refused(r.Foreign),
	}
	for i := range r.Items {
		one := &v1alpha1.CopiedObject{Key: wire.Key(r.Items[i].Key), Result: string(r.Items[i].Result)}
		if err := r.Items[i].Err; err != nil {
			one.Error = err.Error()
		}
		c.Results = append(c.Results, one)
	}
	for _, key := range r.Moved {
		c.Moved = append(c.Moved, wire.Key(key))
	}
	c.Complete = c.GetCounts().GetFailed()+c.GetCounts().GetPending() == 0 && len(c.GetRefused())+len(c.GetMoved()) == 0 && (dryRun || r.Verified)
	return c
}

// refused are what can't be used.
func refused(all []configstore.Refusal) (list []*v1alpha1.RefusedObject) {
	for _, r := range all {
		list = append(list, &v1alpha1.RefusedObject{Source: r.Where, Error: r.Err.Error()})
	}
	return list
}

// Copy writes what a copy has come to: in a dry run every object that is not the same
// already, otherwise the numbers, and what somebody has to look at.
func Copy(w io.Writer, c *v1alpha1.StoreCopy) error {
	suffix := ""
	if c.GetDryRun() {
		suffix = " (dry run)"
	}
	for _, r := range c.GetResults() {
		switch result := transfer.Result(r.GetResult()); {
		case result == transfer.Failed:
			Say(w, "%s failed: %s\n", keyName(r.GetKey()), r.GetError())
		case result == transfer.Kept:
			Say(w, "%s kept: only the target has it, or only there it can be used%s\n", keyName(r.GetKey()), suffix)
		case result == transfer.Deleted || c.GetDryRun() && result != transfer.Unchanged:
			Say(w, "%s %s%s\n", keyName(r.GetKey()), result, suffix)
		}
	}
	for _, r := range c.GetRefused() {
		Say(w, "refused in the source, and not copied: %s\n", r.GetError())
	}
	for _, r := range c.GetForeign() {
		Say(w, "no object, left alone in the target: %s\n", r.GetSource())
	}
	for _, key := range c.GetMoved() {
		Say(w, "%s was changed in the source meanwhile: run the copy again\n", keyName(key))
	}
	Say(w, "%s to %s%s: %s\n", c.GetFrom(), c.GetTo(), suffix, numbers(c.GetCounts()))
	switch {
	case c.GetVerified():
		Say(w, "verified: the target was read back, and has every object that did not fail as the source has it\n")
	case !c.GetDryRun():
		Say(w, "not verified\n")
	}
	return nil
}

// numbers are the results that there are, with how many.
func numbers(n *v1alpha1.CopyCounts) string {
	text := fmt.Sprintf("%d created, %d changed, %d unchanged", n.GetCreated(), n.GetChanged(), n.GetUnchanged())
	for _, more := range []struct {
		n    uint32
		what string
	}{{n.GetDeleted(), "deleted"}, {n.GetKept(), "kept"}, {n.GetFailed(), "failed"}, {n.GetPending(), "not written yet"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	return text
}
