// Package transfer moves the objects of one config store into another. A copy can be repeated.
// Objects that are the same in both are left alone. So a copy that was cut short goes on where it
// was, and a second one does nothing.
//
// Nobody's change is lost: an object of the target is written only at the revision that was read.
// Nothing is passed over in silence: a [Report] has every object of both stores.
package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// Result is what became of an object, or would in a dry run.
type Result string

// The results.
const (
	Created   Result = "created"
	Changed   Result = "changed"
	Unchanged Result = "unchanged"
	Deleted   Result = "deleted"
	Kept      Result = "kept"   // in the target only
	Failed    Result = "failed" // the target did not take it
	Pending   Result = "pending"
)

// Item is one object.
type Item struct {
	Key    catalog.Key
	Result Result
	Err    error // why it Failed
}

// Report is what a copy has come to, also one that has failed halfway.
type Report struct {
	// Items has each object of the source, and each that only the target has, ordered by
	// key. In a copy that was cut short, some are Pending.
	Items []Item

	// Refused is what can't be used in the source, and so was not copied; what the target
	// has under the same keys was kept.
	Refused []configstore.Refusal

	// Foreign is what the target has under keys that are no object's. It is left alone.
	Foreign []configstore.Refusal

	// Moved are objects of the source that were changed, written or deleted while the copy
	// ran. Some of these changes may not be in the target.
	Moved []catalog.Key

	// Verified tells whether the target was read back, and every object of the source that
	// did not fail was found in it as it is in the source.
	Verified bool
}

// Count is the number of objects with a result.
func (r *Report) Count(of Result) int {
	n := 0
	for i := range r.Items {
		if r.Items[i].Result == of {
			n++
		}
	}
	return n
}

// Options say how to copy.
type Options struct {
	DryRun bool // write nothing
	Prune  bool // delete what only the target has
	// Progress is told how many of the writes that are needed were made, after each
	// batch, on the goroutine of Copy. It may be nil.
	Progress func(done, of int)
}

// ErrPrune says that nothing is deleted from the target because it can't be told what
// the source holds.
var ErrPrune = errors.New("the source has objects that can't be used, so what it lacks can't be told; mend them or delete them, then prune")

// ErrEmpty says that nothing is deleted from the target because the source has nothing at
// all: that is rather a wrong prefix or path than meant.
var ErrEmpty = errors.New("the source has no object, and to prune would delete everything from the target; see that its address, path and prefix are right, or delete the objects by name")

// Copy makes the target hold every object of the source. An error means that it was cut short, or
// nothing was done; the Report, which is never nil, says how far it came. Objects that were
// refused, failed or changed meanwhile are in the Report alone.
//
// Clusters are written first and selections last, so that a watcher of the target never follows a
// selection to a cluster that is not there yet.
func Copy(ctx context.Context, from configstore.Reader, to configstore.Writer, o Options) (*Report, error) {
	report := &Report{}
	source, refused, err := from.List(ctx)
	if err != nil {
		return report, fmt.Errorf("read the source: %w", err)
	}
	report.Refused = refused
	if o.Prune && len(refused) > 0 {
		return report, ErrPrune
	}
	if o.Prune && len(source) == 0 {
		return report, ErrEmpty
	}
	target, bad, err := to.List(ctx)
	if err != nil {
		return report, fmt.Errorf("read the target: %w", err)
	}
	unusable, err := revisions(ctx, to, bad)
	if err != nil {
		return report, fmt.Errorf("read what can't be used in the target: %w", err)
	}
	p := newWorklist(source, refused, target, bad, unusable, o.Prune)
	report.Foreign = p.foreign
	if o.DryRun {
		report.Items = p.items(true)
		return report, nil
	}
	w := &writer{to: to, worklist: p, progress: o.Progress, size: mostObjects}
	err = w.writeAll(ctx)
	if err == nil {
		report.Verified, err = p.verify(ctx, to)
	}
	report.Items = p.items(false)
	if err != nil {
		return report, err
	}
	if err := identify(ctx, from, to); err != nil {
		return report, err
	}
	report.Moved, err = moved(ctx, from, source, refused)
	return report, err
}

// identify gives the target the identity of the source, unless it has one: replicas that are moved one
// after the other remain one cluster to peers meanwhile.
func identify(ctx context.Context, from configstore.Reader, to configstore.Writer) error {
	source, ok := from.(configstore.Identifier)
	target, takes := to.(configstore.Identifier)
	if !ok || !takes {
		return nil
	}
	id, err := configstore.Identity(ctx, source, "")
	if err == nil && id != "" {
		_, err = configstore.Identity(ctx, target, id)
	}
	if err != nil {
		return fmt.Errorf("all objects are copied; copy the identity of the store: %w; copy again", err)
	}
	return nil
}

// revisions is the revisions of what a store has and can't use, where it can tell them: a
// list has none. What is not as the list said any more has one that no store gives, so that
// a write for it is a conflict.
func revisions(ctx context.Context, of configstore.Reader, bad []configstore.Refusal) (map[catalog.Key]string, error) {
	var keys []catalog.Key
	for _, r := range bad {
		if r.Key != (catalog.Key{}) {
			keys = append(keys, r.Key)
		}
	}
	got, err := configstore.GetMany(ctx, of, keys)
	if err != nil {
		return nil, err
	}
	held := make(map[catalog.Key]string, len(keys))
	for i, key := range keys {
		held[key] = got[i].Revision
		if !errors.Is(got[i].Err, configstore.ErrInvalid) {
			held[key] = "changed since"
		}
	}
	return held, nil
}

// verify reads the target back.
func (p *worklist) verify(ctx context.Context, to configstore.Reader) (verified bool, err error) {
	stored, _, err := to.List(ctx)
	if err != nil {
		return false, fmt.Errorf("read the target back: %w", err)
	}
	found := make(map[catalog.Key]catalog.Object, len(stored))
	for _, s := range stored {
		found[s.Object.Key()] = s.Object
	}
	verified = true
	for i := range p.steps {
		s := &p.steps[i]
		if s.result == Failed || s.result == Kept {
			continue
		}
		object, there := found[s.key]
		switch {
		case s.object == nil && there:
			err = errors.New("it was deleted, and is there again: somebody else writes to the target")
		case s.object != nil && !there:
			err = errors.New("it was written, and is not there: somebody else writes to the target")
		case s.object != nil && !same(s.object, object):
			err = errors.New("it was written, and reads otherwise: somebody else writes to the target")
		default:
			continue
		}
		s.result, s.err, verified = Failed, err, false
	}
	return verified, nil
}

// moved is what has become another in the source since it was read.
func moved(ctx context.Context, from configstore.Reader, was []configstore.Stored, wasRefused []configstore.Refusal) ([]catalog.Key, error) {
	now, refused, err := from.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the source again, to see whether it was changed meanwhile: %w", err)
	}
	before := make(map[catalog.Key]catalog.Object, len(was))
	for _, s := range was {
		before[s.Object.Key()] = s.Object
	}
	known := map[catalog.Key]bool{}
	for _, r := range wasRefused {
		known[r.Key] = true
	}
	var keys []catalog.Key
	for _, s := range now {
		key := s.Object.Key()
		if object, there := before[key]; !there || !same(object, s.Object) {
			keys = append(keys, key)
		}
		delete(before, key)
	}
	for key := range before {
		keys = append(keys, key)
	}
	for _, r := range refused {
		if _, listed := before[r.Key]; !known[r.Key] && !listed && r.Key != (catalog.Key{}) {
			keys = append(keys, r.Key)
		}
	}
	slices.SortFunc(keys, catalog.Key.Compare)
	return slices.Compact(keys), nil
}

// same tells whether two objects say the same, wherever they come from.
func same(a, b catalog.Object) bool { return bytes.Equal(api.EncodeJSON(a), api.EncodeJSON(b)) }
