package nameresolution

import (
	"fmt"
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// BenchmarkAdmit is a call that the guard lets in, with 1,000 declared callers.
func BenchmarkAdmit(b *testing.B) {
	var apps []catalog.App
	for i := range 1000 {
		apps = append(apps, catalog.App{Namespace: "shop", ID: fmt.Sprint("app-", i)})
	}
	r := &Resolver{self: Instance{App: orders}}
	r.access.Store(&access{Access: catalog.Access{Mode: catalog.GuardEnforce, Declared: (*catalog.AppSet)(nil).With(apps, nil)}})
	g := newGuard(r, nil, func() (string, bool) { return "west.example", true }, quiet)
	caller := catalog.Principal{Domain: "west.example", App: apps[17]}
	admit := func(b *testing.B, of func() *Caller) {
		b.ReportAllocs()
		for b.Loop() {
			if err := of().Admit(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("on a known connection", func(b *testing.B) {
		c := g.Caller(caller)
		admit(b, func() *Caller { return c })
	})
	b.Run("by name", func(b *testing.B) { admit(b, func() *Caller { return g.Caller(caller) }) })
}
