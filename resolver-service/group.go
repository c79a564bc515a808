package resolverservice

import (
	"context"
	"fmt"
	"sync"
)

// A group is the parts of the service that end together.
type group struct {
	ctx    context.Context
	cancel context.CancelFunc
	parts  sync.WaitGroup
	failed chan<- error // takes the first failure of all groups
}

func newGroup(failed chan<- error) *group {
	s := &group{failed: failed}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// start runs a part until the group ends. A part that ends by itself ends the service.
func (s *group) start(name string, run func(context.Context) error) {
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

// end tells every part to end and waits for it.
func (s *group) end() {
	s.cancel()
	s.parts.Wait()
}
