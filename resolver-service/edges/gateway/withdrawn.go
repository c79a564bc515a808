package gateway

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/live"
	"github.com/isthmus-mesh/isthmus/resolver-service/edges/gateway/relay"
)

// leaveWithin is how long connections to an app go on once it is exported no more. Callers whose
// services hear of that have left them by then, and an export that is written again is back.
const leaveWithin = time.Second

// endWithdrawn ends connections to apps that are exported no more, until ctx ends. Callers whose own
// service is away hear of no withdrawal, and would go on by what they have open.
func (s *serving) endWithdrawn(ctx context.Context) {
	for old, _, changed := s.cfg.Table.Follow(); ; {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		if !live.Sleep(ctx, leaveWithin) {
			return
		}
		var table *catalog.GatewayTable
		table, _, changed = s.cfg.Table.Follow()
		if gone := withdrawn(old, table); len(gone) > 0 {
			over := func(o relay.Owner) bool { return gone[o.(*admitted).app] }
			if s.relay != nil {
				s.relay.End(over)
			}
			s.copies.End(over)
			s.cfg.Logger.Info("apps are exported no more; connections to them are ended", "apps", slices.SortedFunc(maps.Keys(gone), catalog.App.Compare))
		}
		old = table
	}
}

// withdrawn are the apps that a table has and a later one has not.
func withdrawn(old, table *catalog.GatewayTable) map[catalog.App]bool {
	gone := map[catalog.App]bool{}
	if old == nil || table == nil {
		return gone
	}
	for e := range table.Backends.Diff(&old.Backends, func(a, b *catalog.Backend) bool { return a == b }) {
		if e.Remove {
			gone[e.App] = true
		}
	}
	return gone
}

func exported(table *catalog.GatewayTable, app catalog.App) bool {
	_, ok := table.Backends.Get(app)
	return ok
}
