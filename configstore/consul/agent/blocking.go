package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/consul/api"
)

// longWait is how long one query waits for a change. Consul adds up to a sixteenth, so that
// readers do not come back all at once.
const longWait = 5 * time.Minute

// longestWait is how long we wait for an answer. A proxy in between may have forgotten the query,
// and answer the heartbeat all the same.
const longestWait = longWait + longWait/16 + 20*time.Second

var errForgotten = fmt.Errorf("a question that waits %s for a change was not answered within %s; does something in between drop connections that are silent?", longWait, longestWait)

// tooSoon is when an answer that says nothing new can't have waited.
const tooSoon = time.Second

// BlockingQuery asks until the answer has another index than the last one, and returns that index.
// Consul answers an index of 0 at once. what names the subject of the query in errors.
func BlockingQuery(ctx context.Context, what string, index uint64, ask func(*api.QueryOptions) (*api.QueryMeta, error)) (now uint64, err error) {
	for {
		begin := time.Now()
		now, err = once(ctx, index, ask)
		if err != nil || now != index {
			return now, err
		}
		if time.Since(begin) < tooSoon { // nothing for a long time is well
			return 0, fmt.Errorf("a question that waits %s for a change of %s was answered at once, with no change; does something in between cache answers?", longWait, what)
		}
	}
}

func once(ctx context.Context, index uint64, ask func(*api.QueryOptions) (*api.QueryMeta, error)) (uint64, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longestWait, errForgotten)
	defer cancel()
	meta, err := ask((&api.QueryOptions{WaitIndex: index, WaitTime: longWait}).WithContext(ctx))
	if err != nil && errors.Is(context.Cause(ctx), errForgotten) {
		err = errForgotten
	}
	if err == nil {
		err = Believe(meta)
	}
	if err != nil {
		return 0, err
	}
	return meta.LastIndex, nil
}
