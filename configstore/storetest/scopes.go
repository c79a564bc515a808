package storetest

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

func scopes() []specification {
	return []specification{
		{"a store opened for one app has its selection and every cluster", scoped},
		{"of a store opened for one app, what others have is never delivered nor refused", othersUnheard},
		{"a bad selection of its own is refused by name", ownRefused},
		{"a reader of one app's scope that comes back learns what it missed", scopedComesBack},
	}
}

var (
	checkout    = configstore.Scope{App: catalog.App{Namespace: "shop", ID: "checkout"}}
	checkoutKey = checkout.Selection()
)

// openScoped opens the store for everything and for one app, with objects that are in
// the scope and some that are not.
func openScoped(t *testing.T, b Backend) (all, own configstore.ReadWriter) {
	t.Helper()
	orSkip(t, b.Scoped != nil, "this store has no scopes")
	all = open(t, b)
	put(t, b, all, Cluster("east", "a"), Cluster("west", "a"), selection("shop", "checkout", 1),
		selection("shop", "orders", 1), selection("else", "checkout", 1), selection("shop", "checkout-2", 1),
		export("shop", "checkout"), export("shop", "orders"), instance("shop", "checkout", "a"))
	return all, Closing(t, b.Scoped(t, checkout))
}

func scoped(t *testing.T, b Backend) {
	s, own := openScoped(t, b)
	r := Watch(t, own, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"), selection("shop", "checkout", 1))
	if first := r.All()[0]; !first.Full {
		t.Errorf("first change %+v; want the full set", first)
	}
	put(t, b, s, selection("shop", "checkout", 2), Cluster("north", "a"))
	remove(t, s, Cluster("west", ""))
	r.awaitSet(Cluster("east", "a"), Cluster("north", "a"), selection("shop", "checkout", 2))
	remove(t, s, selection("shop", "checkout", 0))
	r.awaitSet(Cluster("east", "a"), Cluster("north", "a"))
	put(t, b, s, selection("shop", "checkout", 3))
	r.awaitSet(Cluster("east", "a"), Cluster("north", "a"), selection("shop", "checkout", 3))
}

func othersUnheard(t *testing.T, b Backend) {
	s, own := openScoped(t, b)
	b.PutRaw(t, s, "isthmus/v1alpha1/AppEndpoints/shop/bad", []byte("{"))
	r := Watch(t, own, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"), selection("shop", "checkout", 1))
	put(t, b, s, selection("shop", "orders", 2), export("shop", "more"), instance("shop", "checkout", "b"))
	remove(t, s, selection("else", "checkout", 0))
	b.PutRaw(t, s, "isthmus/v1alpha1/AppEndpoints/shop/worse", []byte("{"))
	put(t, b, s, Cluster("east", "b"))
	r.awaitSet(Cluster("east", "b"), Cluster("west", "a"), selection("shop", "checkout", 1))
	for i, c := range r.All() {
		var heard []catalog.Key
		for _, o := range c.Objects {
			heard = append(heard, o.Object.Key())
		}
		for _, refusal := range c.Refused {
			if refusal.Key != (catalog.Key{}) { // may else be the file with the app's own
				heard = append(heard, refusal.Key)
			}
		}
		for _, key := range append(heard, c.Deleted...) {
			if !checkout.Has(key) {
				t.Errorf("change %d tells %s of %s", i, checkout.App, key)
			}
		}
	}
}

func ownRefused(t *testing.T, b Backend) {
	s, own := openScoped(t, b)
	r := Watch(t, own, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"), selection("shop", "checkout", 1))
	b.PutRaw(t, s, api.KeyPath(checkoutKey), []byte(`{"apiVersion":"isthmus.dev/v1alpha1","kind":"AppEndpoints","metadata":{"namespace":"shop","name":"checkout"},"spec":{"endpoint":[]}}`))
	r.awaitRefused(checkoutKey)
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"), selection("shop", "checkout", 1))
	b.PutRaw(t, s, api.KeyPath(checkoutKey), api.EncodeJSON(selection("shop", "checkout", 2)))
	r.awaitRefused()
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"), selection("shop", "checkout", 2))
}

func scopedComesBack(t *testing.T, b Backend) {
	s, own := openScoped(t, b)
	r := Watch(t, own, "")
	r.awaitSet(Cluster("east", "a"), Cluster("west", "a"), selection("shop", "checkout", 1))
	comeBack(t, own, r, func() {
		put(t, b, s, selection("shop", "orders", 2))
		remove(t, s, selection("shop", "checkout", 0))
		remove(t, s, Cluster("west", ""))
		put(t, b, s, Cluster("east", "b"))
	})
	r.awaitSet(Cluster("east", "b"))
}
