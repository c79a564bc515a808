package demo

import (
	"context"
	"fmt"
	"strings"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

const basketOfEast = `# which cluster runs actors of the type Basket, and who may call them
apiVersion: isthmus.dev/v1alpha1
kind: ActorType
metadata: {namespace: shop, name: basket}
spec:
  type: Basket
  owner: east
  allow:
  - {cluster: west, app: cart}
`

const cartCallsBaskets = `apiVersion: isthmus.dev/v1alpha1
kind: AppEndpoints
metadata: {namespace: shop, name: cart}
spec:
  endpoints:
  - app: orders
    routes:
    - {cluster: east}
  actors:
  - {type: Basket}
`

// actor has cart call an actor of east. A bridge runs in each cluster.
func (w *world) actor(ctx context.Context, p *printer) error {
	if err := w.apply(ctx, p, "basket.yaml", basketOfEast, w.east.CommandLine()); err != nil {
		return err
	}
	if err := w.apply(ctx, p, "cart-calls-baskets.yaml", cartCallsBaskets, nil); err != nil {
		return err
	}
	p.progress("east: daprd and an app that hosts actors; both: isthmus actors, the bridge")
	if _, err := w.east.Sidecar(ctx, sandbox.SidecarOptions{App: shop("baskets"), Actors: "Basket"}); err != nil {
		return err
	}
	for _, c := range []*sandbox.Cluster{w.east, w.west} {
		if _, err := c.Bridge(ctx, "shop", ""); err != nil {
			return err
		}
	}
	var reply *sandbox.Reply
	if err := eventually(ctx, startTimeout, func() (err error) {
		reply, err = w.cart.CallActor(ctx, "Basket/42", "add")
		return err
	}); err != nil {
		return err
	}
	p.command("curl -s -X POST " + w.cart.ActorURL("Basket/42", "add"))
	p.output(fmt.Sprintf("→ answered by an actor of %s/%s in %s", reply.Namespace, reply.App, reply.Cluster))
	if reply.Cluster != "east" {
		return fmt.Errorf("the actor answered in %s, not east", reply.Cluster)
	}
	out, err := w.isthmus(ctx, p, nil, "explain", "--from", "shop/cart", "--actor", "Basket/42")
	if err == nil && !strings.Contains(out, "cluster east owns") {
		err = fmt.Errorf("explain does not name the owner:\n%s", out)
	}
	return err
}
