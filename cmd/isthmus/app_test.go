package main

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// TestANameThatIsNotThere says which one is meant.
func TestANameThatIsNotThere(t *testing.T) {
	known := map[catalog.App]bool{
		{Namespace: "billing", ID: "invoice"}: true, {Namespace: "shop", ID: "orders"}: true, {Namespace: "shop", ID: "checkout"}: false,
		{Namespace: "sales", ID: "orders"}: false, {ID: "east"}: false, // a Cluster has no namespace
	}
	for _, c := range []struct {
		name catalog.App
		want string
	}{
		{catalog.App{Namespace: "shop", ID: "orders"}, ""},
		{catalog.App{Namespace: "shop", ID: "invoice"}, "invoice runs in billing: write billing/invoice"},
		{catalog.App{ID: "checkout"}, "checkout is in shop: write shop/checkout"},
		{catalog.App{ID: "orders"}, "orders runs in sales, shop; write one of them before it, as sales/orders"},
		{catalog.App{Namespace: "shop", ID: "ordres"}, "did you mean shop/orders?"},
		{catalog.App{ID: "invoic"}, "did you mean billing/invoice?"},
		{catalog.App{ID: "est"}, "did you mean east?"},
		{catalog.App{Namespace: "shpo"}, "did you mean namespace shop?"},
		{catalog.App{Namespace: "shop"}, ""},
		{catalog.App{Namespace: "shop", ID: "telescope"}, ""},
		{catalog.App{Namespace: "billng", ID: "telescope"}, "did you mean namespace billing?"},
	} {
		if got := nearest(c.name, known); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
