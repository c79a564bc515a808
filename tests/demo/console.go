package demo

import (
	"context"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// showConsoles opens the console of each cluster, and tells where.
func (w *world) showConsoles(ctx context.Context, p *printer) error {
	p.say("To see it in a browser (each URL works once; what a console prints next is in its log):")
	for _, cluster := range []*sandbox.Cluster{w.west, w.east} {
		console, err := cluster.Console(ctx)
		if err != nil {
			return err
		}
		url, err := console.URL(ctx)
		if err != nil {
			return err
		}
		p.say("  %s: %s", cluster.Name, url)
		p.say("    %s", p.style(faint, "log: "+console.LogFile()))
	}
	return nil
}
