package instances

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// What can't be used is named before what is only not as it should be, however much of that
// there is; and what is beyond a hundred is counted.
func TestWhatCantBeUsedIsNamedBeforeRemarks(t *testing.T) {
	bad := at("orders", "1", "0.0.0.0:1")
	for _, c := range []struct {
		refused, remarks int
		named            string // the first, that of our own, and the last
		count            uint32
	}{
		{1, 1, "[refused 0 instance 1 of shop/orders remark 0]", 3},
		{2, 150, "[refused 0 instance 1 of shop/orders remark 96]", 153},
		{98, 150, "[refused 0 instance 1 of shop/orders remark 0]", 249},
		{150, 150, "[refused 0 none refused 99]", 301},
	} {
		synctest.Test(t, func(t *testing.T) {
			said := Change{Full: true, Put: []catalog.Instance{bad}}
			for n := range c.refused {
				said.Refused = append(said.Refused, Refusal{fmt.Sprint("refused ", n), errors.New("it can't be read")})
			}
			for n := range c.remarks {
				said.Remarks = append(said.Remarks, Refusal{fmt.Sprint("remark ", n), errors.New("another has its address")})
			}
			s := &script{name: "a", watches: []func(func(Change) error) error{says(nil, said)}}
			f := follow(t, FeedConfig{Sources: []Source{s}}, newRecorder(), time.Second)
			m := statusOf(t, f, "a").Message()
			if len(m.GetRefused()) != min(maxRefused, int(c.count)) || m.GetRefusedCount() != c.count {
				t.Fatalf("%d and %d: %d are named of %d; want %d", c.refused, c.remarks, len(m.GetRefused()), m.GetRefusedCount(), c.count)
			}
			own := "none"
			for _, r := range m.GetRefused() {
				if r.GetSource() == "instance 1 of shop/orders" {
					own = r.GetSource()
				}
			}
			first, last := m.GetRefused()[0], m.GetRefused()[len(m.GetRefused())-1]
			if got := fmt.Sprint([]string{first.GetSource(), own, last.GetSource()}); got != c.named {
				t.Errorf("%d and %d: %s are named, want %s", c.refused, c.remarks, got, c.named)
			}
		})
	}
}
