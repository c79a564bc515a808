package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/consul/api"
)

// answers is a question that is answered so, one after the other, each after a while.
func answers(after time.Duration, all ...api.QueryMeta) func(*api.QueryOptions) (*api.QueryMeta, error) {
	return func(*api.QueryOptions) (*api.QueryMeta, error) {
		time.Sleep(after)
		now := all[0]
		if len(all) > 1 {
			all = all[1:]
		}
		return &now, nil
	}
}

func TestAwait(t *testing.T) {
	at := func(index uint64) api.QueryMeta { return api.QueryMeta{LastIndex: index, KnownLeader: true} }
	hidden, leaderless := at(9), at(9)
	hidden.ResultsFilteredByACLs, leaderless.KnownLeader = true, false
	for what, c := range map[string]struct {
		ask  func(*api.QueryOptions) (*api.QueryMeta, error)
		want uint64
		err  string
	}{
		"a change":                          {answers(0, at(9)), 9, ""},
		"one after long silence":            {answers(5*time.Minute, at(5), at(5), at(6)), 6, ""},
		"an index that goes back":           {answers(0, at(2)), 2, ""},
		"the same at once":                  {answers(0, at(5)), 0, "does something in between cache answers?"},
		"not all of it":                     {answers(0, hidden), 0, ErrHidden.Error()},
		"no leader":                         {answers(0, leaderless), 0, ErrNoLeader.Error()},
		"no index":                          {answers(0, at(0)), 0, ErrNoIndex.Error()},
		"an error, after the end of a wait": {func(o *api.QueryOptions) (*api.QueryMeta, error) { <-o.Context().Done(); return nil, o.Context().Err() }, 0, "drop connections that are silent"},
	} {
		synctest.Test(t, func(t *testing.T) {
			got, err := BlockingQuery(t.Context(), "services", 5, c.ask)
			if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %d, %v; want %d, %q", what, got, err, c.want, c.err)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := BlockingQuery(ctx, "services", 5, func(o *api.QueryOptions) (*api.QueryMeta, error) { return nil, o.Context().Err() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}
