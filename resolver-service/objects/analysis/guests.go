package analysis

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// guest checks which calls a guest takes.
func (a *Analysis) guest(c *catalog.Cluster) {
	if c.Guest == nil {
		return
	}
	for i, t := range c.Guest.Takes {
		path := fmt.Sprintf("spec.guest.takes[%d]", i)
		if t.Caller != (catalog.App{}) && !a.facts.MayCall(t.Caller, t.App) {
			a.add(c, 0, Finding{
				Check: NoTraffic, Warning: true, Path: path + ".caller", What: fmt.Sprintf("%s may not call %s here, so the guest gets no call by this", t.Caller, t.App),
				Fix: fmt.Sprintf("add %s to spec.endpoints of AppEndpoints %s, or name another caller", t.App, t.Caller),
			})
		}
		if by := a.facts.TakenBefore(c.Name, t); by != "" {
			a.add(c, 0, Finding{
				Check: NoEffect, Warning: true, Path: path, What: fmt.Sprintf("guest %s takes the same calls, and comes first", by), Fix: "choose other calls, or end that guest",
			})
		}
	}
}
