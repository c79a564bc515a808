package identity_test

import (
	"testing"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

func TestParseID(t *testing.T) {
	tests := []struct {
		uri  string
		want catalog.App // zero: refused
	}{
		{"spiffe://public/ns/shop/checkout", catalog.App{Namespace: "shop", ID: "checkout"}},
		{"spiffe://east.example/ns/shop/checkout", catalog.App{Namespace: "shop", ID: "checkout"}},
		{"spiffe://public/ns/shop/Check_Out", catalog.App{Namespace: "shop", ID: "Check_Out"}},
		{uri: "spiffe://public/ns/shop"},
		{uri: "spiffe://public/ns/shop/"},
		{uri: "spiffe://public/ns//checkout"},
		{uri: "spiffe://public/ns/shop/checkout/"},
		{uri: "spiffe://public/ns/shop/checkout/extra"},
		{uri: "spiffe://public/ns/shop/../checkout"},
		{uri: "spiffe://public/sa/shop/checkout"},
		{uri: "spiffe://public/NS/shop/checkout"},
		{uri: "spiffe://public/ns/shop/check.out"},
		{uri: "spiffe://public/ns/Shop/checkout"},
		{uri: "spiffe://public/ns/shop/check%6Fut"},
		{uri: "spiffe://public/ns/shop/checkout?x=1"},
		{uri: "spiffe://public:8080/ns/shop/checkout"},
		{uri: "spiffe:///ns/shop/checkout"},
		{uri: "https://public/ns/shop/checkout"},
		{uri: ""},
	}
	for _, tt := range tests {
		t.Run(tt.uri, func(t *testing.T) {
			id, err := identity.ParseID(tt.uri)
			if tt.want == (catalog.App{}) {
				if err == nil {
					t.Fatalf("got %s; want it refused", id)
				}
				return
			}
			if err != nil || id.App != tt.want || id.String() != tt.uri {
				t.Fatalf("got %v, %v; want app %s", id, err, tt.want)
			}
		})
	}
}

// An accepted text is unchanged when it is written again, and its app has a name that everything
// else can carry.
func FuzzParseID(f *testing.F) {
	for _, seed := range []string{
		"spiffe://public/ns/shop/checkout", "spiffe://a.b/ns/s/c", "spiffe://public/ns/shop/checkout/", "spiffe://public/ns/a/b?c#d", "spiffe://p/ns/%61/b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		id, err := identity.ParseID(uri)
		if err != nil {
			return
		}
		if id.String() != uri {
			t.Errorf("%q was read as %q", uri, id)
		}
		if err := id.App.Check(); err != nil {
			t.Errorf("%q was read as an app that can't be: %v", uri, err)
		}
	})
}

func TestServiceApp(t *testing.T) {
	if got := identity.ServiceApp("", "west").String(); got != "isthmus-system/isthmus-west" {
		t.Errorf("got %s", got)
	}
	if got := identity.CLIApp("mesh").String(); got != "mesh/isthmus-cli" {
		t.Errorf("got %s", got)
	}
	tests := []struct {
		namespace string
		app       catalog.App
		want      string // empty: no resolver service
	}{
		{"", identity.ServiceApp("", "west"), "west"},
		{"mesh", identity.ServiceApp("mesh", "north-2"), "north-2"},
		{"", identity.ServiceApp("mesh", "west"), ""},
		{"", catalog.App{Namespace: "shop", ID: "isthmus-west"}, ""},
		{"", catalog.App{Namespace: "isthmus-system", ID: "west"}, ""},
		{"", catalog.App{Namespace: "isthmus-system", ID: "isthmus-"}, ""},
		{"", catalog.App{Namespace: "isthmus-system", ID: "isthmus-local"}, ""},
		{"", identity.CLIApp(""), ""},
	}
	for _, tt := range tests {
		if got, ok := identity.ServiceCluster(tt.namespace, tt.app); got != tt.want && ok || ok != (tt.want != "") {
			t.Errorf("%s in namespace %q: got %q, %v; want %q", tt.app, tt.namespace, got, ok, tt.want)
		}
	}
}
