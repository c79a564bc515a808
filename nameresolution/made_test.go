package nameresolution

import (
	"maps"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// TestCallsUnderWayAreToldOnEachStream has three calls last longer than a stream.
func TestCallsUnderWayAreToldOnEachStream(t *testing.T) {
	c := &client{toldMade: map[madeKey]*told{}}
	all := []Made{{App: catalog.App{Namespace: "shop", ID: "orders"}, Cluster: "east", UnderWay: 3}}
	for _, step := range []struct {
		what string
		do   func()
		want int
	}{
		{"the first report", func() {}, 1},
		{"nothing has changed", func() {}, 0},
		{"another stream", c.forgetUnderWay, 1},
		{"the calls have ended", func() { all[0].UnderWay = 0 }, 1},
		{"another stream, with no call under way", c.forgetUnderWay, 0},
	} {
		step.do()
		m, then, _ := madeReport(all, c.toldMade)
		if len(m.GetMade()) != step.want {
			t.Errorf("%s: told %v", step.what, m.GetMade())
		}
		maps.Copy(c.toldMade, then)
	}
}
