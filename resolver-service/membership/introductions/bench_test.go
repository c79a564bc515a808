package introductions

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// BenchmarkOneChange is one introduced cluster that changes, among many.
func BenchmarkOneChange(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld(b)
			w.west.write(hubRule)
			w.hub.write(eu)
			good := introduction(w.hub.written["eu-1"])
			said := func(i, at int) *v1alpha1.Introduction {
				m := proto.CloneOf(good)
				m.Object.Metadata.Name, m.Object.Spec.Gateways[0].Address = fmt.Sprintf("eu-%d", i), fmt.Sprintf("203.0.113.%d:15443", at%200+1)
				return m
			}
			m := &v1alpha1.IntroductionsResponse{}
			for i := range n {
				m.Put = append(m.Put, said(i, 1))
			}
			var change configstore.Change
			w.west.heard.deriver = derives{&change}
			if err := w.west.heard.Hear("hub", m); err != nil || len(change.Objects) != n {
				b.Fatal(err, len(change.Objects), strings.TrimSpace(w.west.says("hub")))
			}
			at := 1
			for b.Loop() {
				at++
				change = configstore.Change{}
				if err := w.west.heard.Hear("hub", &v1alpha1.IntroductionsResponse{Put: []*v1alpha1.Introduction{said(0, at)}}); err != nil || len(change.Objects) != 1 {
					b.Fatal(err, len(change.Objects))
				}
			}
		})
	}
}
