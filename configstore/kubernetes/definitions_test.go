package kubernetes

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/configstore/kubernetes/apiserver"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

// elsewhere are the mistakes that no API server can refuse, and why: they are not in what
// it is sent or keeps.
var elsewhere = map[string]string{
	"no namespace":                "it is that of the request",
	"a cluster in a namespace":    "Kubernetes leaves it out",
	"a number in octal":           "it is 7 to Kubernetes",
	"a number that begins with 0": "it is 8 to Kubernetes",
	"a merge key":                 "Kubernetes resolves it",
	"a tag":                       "Kubernetes resolves it",
	"a tag of one's own":          "Kubernetes ignores it",
	"a date for a string":         "it is the text 2020-01-01 to Kubernetes, or as here an app-id",
	"a list with nothing in it":   "it is kept, and the resolver service refuses it",

	"a route to an app that can't be called from there": "no app of Kubernetes has such an app-id; it is kept, and the resolver service refuses it",

	"a root with bytes missing":     "no rule can read a certificate; it is kept, and the resolver service refuses it",
	"a certificate that is no root": "the same",
	"a doubled root":                "the same",

	"a gateway for an app at two ports": "a rule that compares all gateways would cost too much; it is kept, and the resolver service refuses it",

	"the caller's own name for another": "no rule reads the names of endpoints, of which there may be 20,000; it is kept, and the resolver service refuses it",
	"an app by its own name":            "the same",
	"another app's name":                "the same",
	"names in a circle":                 "the same",
	"names in a row":                    "the same",
	"one name for two apps":             "the same",
}

// keptForTheService are those that the API server stores as they are, and that the
// resolver service then refuses with a condition.
var keptForTheService = map[string]catalog.Kind{
	"a list with nothing in it": catalog.KindAppEndpoints,
	"a root with bytes missing": catalog.KindCluster, "a certificate that is no root": catalog.KindCluster, "a doubled root": catalog.KindCluster,
	"a gateway for an app at two ports": catalog.KindCluster,
}

// post creates an object from YAML as the administrator, as strictly as kubectl does, and
// without keeping it.
func (c *cluster) post(t *testing.T, text string) ([]byte, error) {
	t.Helper()
	var head struct {
		Kind     catalog.Kind `yaml:"kind"`
		Metadata struct {
			Namespace string `yaml:"namespace"`
		} `yaml:"metadata"`
	}
	if err := yaml.Unmarshal([]byte(text), &head); err != nil {
		return nil, err // kubectl reads it, too
	}
	r := resourceOf(head.Kind)
	if r.plural == "" {
		return nil, errors.New("there is no such resource")
	}
	namespace := head.Metadata.Namespace
	if head.Kind.Namespaced() && namespace == "" {
		namespace = "default" // as kubectl does
	}
	if !head.Kind.Namespaced() {
		namespace = ""
	}
	return c.admin.Call(t.Context(), apiserver.Request{
		Method: http.MethodPost, Path: r.path(namespace), ContentType: "application/yaml", Body: []byte(text),
		Query: url.Values{"fieldValidation": {"Strict"}, "dryRun": {"All"}},
	})
}

func TestTheAPIServerRefusesWhatIsthmusRefuses(t *testing.T) {
	c := strict(t)
	c.makeNamespaces(t, "shop", "finance")
	for _, refusal := range apitest.Refusals() {
		t.Run(refusal.Name, func(t *testing.T) {
			stored, err := c.post(t, refusal.Text)
			why, except := elsewhere[refusal.Name]
			switch {
			case err != nil && apiserver.Code(err) == 0:
				t.Log("is not sent at all:", err)
			case err != nil && !slices.Contains([]int{http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusNotFound}, apiserver.Code(err)):
				t.Errorf("refused with %v; want that it is not valid", err)
			case err == nil && !except:
				t.Errorf("the API server takes it: %s", stored)
			case err == nil:
				t.Log("the API server takes it:", why)
			default:
				t.Log(err)
			}
			if kind, kept := keptForTheService[refusal.Name]; err == nil && kept {
				c.refusedByService(t, kind, stored)
			}
		})
	}
}

// refusedByService holds that a stored resource is no object.
func (c *cluster) refusedByService(t *testing.T, kind catalog.Kind, stored []byte) {
	t.Helper()
	i, err := resourceOf(kind).parse(stored)
	if err != nil {
		t.Fatal(err)
	}
	if objects, refused := decode([]item{i}); len(refused) != 1 {
		t.Errorf("the service takes %v; want it refused", objects)
	}
}

func TestTheAPIServerTakesWhatIsthmusTakes(t *testing.T) {
	c := strict(t)
	c.makeNamespaces(t, "shop", catalog.DefaultsNamespace, "0", strings.Repeat("n", 63))
	for name, text := range apitest.Accepted() {
		t.Run(name, func(t *testing.T) {
			stored, err := c.post(t, text)
			if err != nil {
				t.Fatalf("the API server refuses it: %v", err)
			}
			objects, errs := api.DecodeYAML("f.yaml", []byte(text))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			i, err := resourceOf(objects[0].Key().Kind).parse(stored)
			if err != nil {
				t.Fatal(err)
			}
			got, refused := decode([]item{i})
			if len(refused) > 0 || string(api.EncodeJSON(got[0].Object)) != string(api.EncodeJSON(objects[0])) {
				t.Errorf("stored %s (refused: %v); want %s", stored, refused, api.EncodeJSON(objects[0]))
			}
		})
	}
}

// TestTheWordsAreThoseOfIsthmus is for those who read what kubectl prints.
func TestTheWordsAreThoseOfIsthmus(t *testing.T) {
	c := strict(t)
	c.makeNamespaces(t, "shop")
	for text, want := range map[string]string{
		apitest.Object("Cluster", "{name: local}", "{network: a}"):                                                     `cluster name "local" is reserved; choose another`,
		apitest.Object("Cluster", "{name: east}", "{network: a, staleAfter: 1ms}"):                                     "is out of bounds; write one from 100ms to 24h0m0s",
		apitest.Object("Cluster", "{name: east}", "{gateways: [{address: \"gw:99999\"}]}"):                             `port "99999" is not a number from 1 to 65535`,
		apitest.Trusting(apitest.EastRoot + apitest.Key):                                                               "has a private key in it, which everybody who can read the config store could use; take it out",
		apitest.Checked("tcp: {}, grpc: {}"):                                                                           "wants exactly one way to check; write one of tcp, http and grpc",
		apitest.Checked("tcp: {}, timeout: 3s"):                                                                        "the timeout is longer than the interval; write a shorter timeout or a longer interval",
		apitest.Instance("address: \"0.0.0.0:50002\""):                                                                 "is not the address of one host, or link-local; write \"ip:port\", such as 10.0.0.5:50002",
		apitest.Selection("  - app: checkout\n"):                                                                       "itself, which always resolves to its own instance; leave this endpoint out",
		apitest.Selection("  - {app: checkout, namespace: shop}\n"):                                                    "is shop/checkout itself, which always resolves to its own instance; leave this endpoint out",
		apitest.Selection("  - app: a\n  - {app: a, namespace: shop}\n"):                                               "shop/a is there twice; put all its routes into one of them",
		apitest.Selection("  - app: a\n    rout: []\n"):                                                                `unknown field "spec.endpoints[0].rout"`,
		apitest.Selection("  - {app: a, routes: [{cluster: east, weight: 10001}]}\n"):                                  "spec.endpoints[0].routes[0].weight",
		apitest.Object("AppExport", "{namespace: shop, name: a}", "{allow: [{cluster: West}]}"):                        "spec.allow[0].cluster",
		apitest.Object("ActorType", "{namespace: shop, name: a}", "{type: A, owner: east, allow: [{cluster: local}]}"): "spec.allow[0].cluster",
	} {
		if out, err := c.Run(text, "apply", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(out, want) {
			t.Errorf("kubectl apply of\n%s\nsays\n%s\nwant %q", text, out, want)
		}
	}
}

// makeNamespaces makes namespaces where there are none.
func (c *cluster) makeNamespaces(t testing.TB, names ...string) {
	t.Helper()
	spaces := namespaces{cluster: c, made: map[string]bool{}}
	for _, name := range names {
		if err := spaces.make(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDefinitionsOfAnotherRelease compares definitions that are older, newer and not there.
func TestDefinitionsOfAnotherRelease(t *testing.T) {
	c := strict(t)
	opened := func(c *cluster, user string) *Store {
		s, err := Open(c.config(t, user), configstore.Scope{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	s := opened(c, "service")
	is := func(what string, want Definitions) {
		t.Helper()
		serverstest.Await(t, what, func() bool {
			got, err := s.Definitions(t.Context())
			return err == nil && reflect.DeepEqual(got, want)
		})
	}
	is("what users apply", Definitions{})
	const spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/"
	if err := c.Kubectl("patch", "crd", "appexports.isthmus.dev", "--type=json", "-p",
		`[{"op":"move","from":"`+spec+`allow/items/properties/namespace","path":"`+spec+`allow/items/properties/colour"}]`); err != nil {
		t.Fatal(err)
	}
	is("a field that is called otherwise", Definitions{Lacking: []string{"AppExport.spec.allow.namespace"}, Unknown: []string{"AppExport.spec.allow.colour"}})
	if err := c.Kubectl("delete", "crd", "appexports.isthmus.dev"); err != nil {
		t.Fatal(err)
	}
	is("no definition", Definitions{Missing: []string{"appexports.isthmus.dev"}})
	if err := c.Kubectl("apply", "-f", manifests+"crds.yaml"); err != nil {
		t.Fatal(err)
	}
	is("what users apply, again", Definitions{})
	if _, err := opened(lax(t), "nobody").Definitions(t.Context()); err != nil {
		t.Errorf("of a server that says nothing of fields, as somebody without rights: %v", err)
	}
}
