package sandbox

import (
	"context"
	"sync"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/collector"
)

// Traces starts a receiver for traces on a free port, in this process.
func (s *Sandbox) Traces() (*collector.Collector, error) {
	c, err := collector.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := c.Run(ctx); err != nil {
			s.log.Error("the receiver for traces has stopped", "err", err)
		}
	})
	s.onClose(func() {
		cancel()
		serving.Wait()
	})
	return c, nil
}
