package resolverservice

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
	"github.com/isthmus-mesh/isthmus/identity/identitytest"
	"github.com/isthmus-mesh/isthmus/internal/show"
)

// all are the messages of a stream as one.
func all[M any](stream grpc.ServerStreamingClient[M], err error, take func(*M)) error {
	for err == nil {
		var m *M
		if m, err = stream.Recv(); err == nil {
			take(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// A cluster goes away, and the graph tells whom that harms; until it is back.
func TestTheGraphTellsWhomAClusterThatIsAwayHarms(t *testing.T) {
	ca := identitytest.NewCA(t)
	eastConfig := configOf(t, "east", ca)
	eastConfig.Listen.Gateway = freeAddress(t)
	east, west := start(t, eastConfig, ca), start(t, configOf(t, "west", ca), ca)
	east.apply(clusterOnly("west") + "---\n" + export("west") + "---\n" + strings.ReplaceAll(export("west"), "orders", "stock"))
	stock := catalog.App{Namespace: "shop", ID: "stock"}
	for _, app := range []catalog.App{orders, stock} {
		there, err := net.Listen("tcp", "127.0.0.1:0") // what refuses connections does not stand after a restart
		if err != nil {
			t.Fatal(err)
		}
		defer there.Close()
		east.sidecar(app, there.Addr().String())
	}
	west.sidecar(stock, "10.0.0.1:50002")
	head := "apiVersion: isthmus.dev/v1alpha1\nkind: AppEndpoints\nmetadata: {namespace: shop, name: "
	west.apply(clusterAt("east", east.Addr("gateway"), "2s") + "---\n" +
		head + "a}\nspec: {endpoints: [{app: orders}, {app: stock}]}\n---\n" + // stock is here, too, and comes first
		head + "b}\nspec: {endpoints: [{app: orders, whenStale: serve}, {app: stock, routes: [{cluster: east}, {cluster: local, priority: 1}]}]}\n")
	client := v1alpha1.NewInventoryClient(west.connect(identity.CLIApp("")))
	harm := func() (text string) {
		g := &v1alpha1.GraphResponse{}
		stream, err := client.Graph(t.Context(), &v1alpha1.GraphRequest{Via: "east"})
		if err := all(stream, err, func(m *v1alpha1.GraphResponse) { show.AddGraph(g, m) }); err != nil {
			t.Fatal(err)
		}
		show.Filter(g, show.GraphFilter{Clusters: []string{"east"}})
		for _, c := range g.GetCalls() {
			text += fmt.Sprintf("%s>%s %s, ", c.GetCaller().GetId(), c.GetCallee().GetId(), c.GetHarm())
		}
		return text
	}
	well := "a>orders none, a>stock none, b>orders none, b>stock none, "
	west.within("all is well", func() bool { return harm() == well })
	if err := east.stop(); err != nil {
		t.Fatal(err)
	}
	west.within("whom it harms", func() bool { return harm() == "a>orders fails, a>stock none, b>orders stale, b>stock elsewhere, " })
	start(t, eastConfig, ca)
	west.within("all is well again", func() bool { return harm() == well })
}
