package process

import (
	"context"
	"fmt"
	"sync"
)

// Group is the parts of the service that end together.
type Group struct {
	ctx    context.Context
	cancel context.CancelFunc
	parts  sync.WaitGroup
	failed chan<- error // takes the first failure of all groups
}

// NewGroup makes a group that sends its first failure to failed, unless another one was first.
func NewGroup(failed chan<- error) *Group {
	s := &Group{failed: failed}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start runs a part until the group ends. A part that ends by itself ends the service.
func (s *Group) Start(name string, run func(context.Context) error) {
	s.parts.Go(func() {
		err := run(s.ctx)
		switch {
		case err == nil && s.ctx.Err() != nil:
			return
		case err == nil:
			err = fmt.Errorf("%s ended by itself", name)
		default:
			err = fmt.Errorf("%s: %w", name, err)
		}
		select {
		case s.failed <- err:
		default: // another part was first
		}
	})
}

// Cancel tells every part to end.
func (s *Group) Cancel() { s.cancel() }

// End tells every part to end and waits for it.
func (s *Group) End() {
	s.cancel()
	s.parts.Wait()
}
