package nameresolution

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/identity"
)

type m = map[string]any

func insecure() m { return m{"insecure": true} }

func TestTheConfigurationOfTheDesignIsTaken(t *testing.T) {
	// As YAML decoders hand it over: nested mappings with keys of any type.
	got, err := parseConfig(map[any]any{
		"resolver": "127.0.0.1:7400", "cluster": "west",
		"lastGood": "/var/lib/isthmus/checkout.view", "resolveTimeout": "1500ms",
		"resolverNamespace": "mesh", "advertise": "10.0.0.7",
		"identity": map[any]any{"sentry": map[any]any{"address": "127.0.0.1:50001", "trustAnchorsFile": "/ca.crt"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := &config{
		Resolver: "127.0.0.1:7400", Cluster: "west", LastGood: "/var/lib/isthmus/checkout.view",
		ResolveTimeout: 1500 * time.Millisecond, ResolverNamespace: "mesh", Advertise: "10.0.0.7", Domain: catalog.DefaultDomain,
		Identity: &identity.Config{Sentry: &identity.Sentry{Address: "127.0.0.1:50001", TrustAnchorsFile: "/ca.crt"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}

	got, err = parseConfig(m{
		"store":   map[any]any{"file": map[any]any{"path": "./config"}},
		"local":   m{"component": "mdns", "version": "v1", "configuration": map[any]any{"list": []any{map[any]any{"a": 1.5}}}},
		"cluster": "west",
	})
	if err != nil {
		t.Fatal(err)
	}
	want = &config{
		Store: m{"file": m{"path": "./config"}}, Cluster: "west", ResolveTimeout: DefaultResolveTimeout, Domain: catalog.DefaultDomain,
		Local: &localConfig{Component: "mdns", Version: "v1", Configuration: m{"list": []any{m{"a": 1.5}}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestTheZoneIsTextOrInAVariable(t *testing.T) {
	t.Setenv("ISTHMUS_TEST_ZONE", "eu-1b")
	for _, c := range []struct {
		zone    any
		want    string
		refused string
	}{
		{"eu-1a", "eu-1a", ""},
		{m{"env": "ISTHMUS_TEST_ZONE"}, "eu-1b", ""},
		{m{"env": "ISTHMUS_TEST_NO_ZONE"}, "", ""},
		{"", "", "zone: is empty"},
		{m{}, "", "zone: names no variable"},
		{m{"file": "x"}, "", "zone.file: unknown field"},
		{7, "", "zone: is 7"},
		{strings.Repeat("z", 64), "", "zone: the zone is 64 characters long"},
		{"a\tb", "", "zone: the zone has '\\t' in it"},
	} {
		got, err := parseConfig(m{"resolver": "127.0.0.1:7400", "cluster": "west", "identity": insecure(), "zone": c.zone})
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("zone %v: %v, want %q", c.zone, err, c.refused)
			}
		case err != nil || got.zone != c.want:
			t.Errorf("zone %v: %+v, %v", c.zone, got, err)
		}
	}
}

func TestTheVersionIsTextOrInAVariable(t *testing.T) {
	t.Setenv("ISTHMUS_TEST_VERSION", "2.1.0")
	for _, c := range []struct {
		version       any
		want, refused string
	}{
		{"1.0+build", "1.0+build", ""}, {m{"env": "ISTHMUS_TEST_VERSION"}, "2.1.0", ""}, {m{"env": "ISTHMUS_TEST_NO_VERSION"}, "", ""},
		{2.1, "", "version: is 2.1"}, {"2.*", "", "version: has '*' at position 3"}, {"", "", "version: is empty"},
	} {
		got, err := parseConfig(m{"resolver": "127.0.0.1:7400", "cluster": "west", "identity": insecure(), "version": c.version})
		if c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) || c.refused == "" && (err != nil || got.version != c.want) {
			t.Errorf("version %v: %+v, %v; want %q, %q", c.version, got, err, c.want, c.refused)
		}
	}
}

func TestCallsAreRead(t *testing.T) {
	for _, c := range []struct {
		calls   []any
		want    catalog.Calls
		refused string
	}{
		{[]any{"orders", "ledger.finance"}, "finance/ledger,shop/orders", ""},
		{[]any{}, "", "calls: \"\": app-id is empty"},
		{[]any{"shop/orders"}, "", `calls: "shop/orders": app-id "shop/orders"`},
	} {
		cfg, err := parseConfig(m{"resolver": "127.0.0.1:7400", "cluster": "west", "identity": insecure(), "calls": c.calls})
		if err == nil {
			err = cfg.readCalls("shop")
		}
		switch {
		case c.refused != "":
			if err == nil || !strings.Contains(err.Error(), c.refused) {
				t.Errorf("%v: %v, want %q", c.calls, err, c.refused)
			}
		case err != nil || cfg.calls != c.want:
			t.Errorf("%v: %+v, %v", c.calls, cfg, err)
		}
	}
}

func TestSeveralReplicasAreTaken(t *testing.T) {
	got, err := parseConfig(m{"resolver": "10.0.0.1:7400, resolver.example:7400,unix:///run/isthmus.sock", "cluster": "west", "identity": insecure()})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"10.0.0.1:7400", "resolver.example:7400", "unix:///run/isthmus.sock"}; !reflect.DeepEqual(got.resolvers(), want) {
		t.Errorf("replicas %q, want %q", got.resolvers(), want)
	}
}

func TestEveryMistakeNamesItsKey(t *testing.T) {
	with := func(key string, value any) m {
		all := m{"resolver": "127.0.0.1:7400", "cluster": "west", "identity": insecure()}
		if value == nil {
			delete(all, key)
		} else {
			all[key] = value
		}
		return all
	}
	alone := func(key string, value any) m {
		all := m{"store": m{"file": m{"path": "x"}}, "cluster": "west", "local": m{"component": "mdns"}}
		if value == nil {
			delete(all, key)
		} else {
			all[key] = value
		}
		return all
	}
	for what, test := range map[string]struct {
		configuration any
		want          []string
	}{
		"none at all":                {nil, []string{"there is none", "resolver"}},
		"a text":                     {"resolver", []string{`is "resolver" where a mapping is wanted`}},
		"a misspelt key":             {with("resolveTimout", "2s"), []string{"resolveTimout", `did you mean "resolveTimeout"`}},
		"a misspelt key, deep":       {with("identity", m{"sentry": m{"adress": "x:1"}}), []string{"identity.sentry.adress", `did you mean "address"`}},
		"a key of nothing":           {with("zzz", 1), []string{"zzz: unknown field; the fields here are", "cluster"}},
		"two mistakes":               {m{"resolvr": "x", "clustr": "y"}, []string{`did you mean "resolver"`, `did you mean "cluster"`}},
		"a number for a text":        {with("cluster", 7.0), []string{"cluster: 7 is a whole number where a text is wanted"}},
		"a text for a truth":         {with("identity", m{"insecure": "yes"}), []string{`identity.insecure: "yes" does not fit; write true or false`}},
		"a list for a mapping":       {with("identity", []any{}), []string{"identity: is a list where a mapping is wanted"}},
		"a value left out":           {m{"resolver": nil}, []string{"resolver: has no value"}},
		"an empty text":              {with("lastGood", ""), []string{"lastGood: is empty"}},
		"a key that is a number":     {map[any]any{1: "x"}, []string{"1: unknown field"}},
		"a time without a unit":      {with("resolveTimeout", 2.0), []string{"resolveTimeout: 2 does not fit", `"10s"`}},
		"a bad time":                 {with("resolveTimeout", "2 seconds"), []string{"resolveTimeout", `"2 seconds"`}},
		"a negative time":            {with("resolveTimeout", "-2s"), []string{"resolveTimeout", `"-2s"`}},
		"neither resolver nor store": {with("resolver", nil), []string{"neither resolver nor store"}},
		"both resolver and store":    {with("store", m{"file": m{"path": "x"}}), []string{"resolver and store exclude each other"}},
		"no cluster":                 {with("cluster", nil), []string{"cluster: is missing"}},
		"a cluster named local":      {with("cluster", "local"), []string{"cluster", "reserved"}},
		"a bad domain":               {with("domain", "a..b"), []string{"domain"}},
		"a resolver without a port":  {with("resolver", "127.0.0.1"), []string{"resolver", "host:port"}},
		"a resolver with a bad port": {with("resolver", "127.0.0.1:http"), []string{"resolver", `"http"`}},
		"a relative socket":          {with("resolver", "unix://x.sock"), []string{"resolver", "three slashes"}},
		"one replica of two is bad":  {with("resolver", "10.0.0.1:7400, 10.0.0.2"), []string{"resolver", `"10.0.0.2"`, "commas"}},
		"an empty replica":           {with("resolver", "10.0.0.1:7400,"), []string{"resolver", `""`}},
		"a replica twice":            {with("resolver", "10.0.0.1:7400, 10.0.0.1:7400"), []string{"resolver", `"10.0.0.1:7400" is there twice`}},
		"too many replicas":          {with("resolver", strings.Repeat("a.example:1,", 16)+"b.example:1"), []string{"resolver", "17 addresses", "at most 16"}},
		"no identity":                {with("identity", nil), []string{"identity: is missing", "insecure: true"}},
		"two identities":             {with("identity", m{"insecure": true, "files": m{"cert": "c", "key": "k", "ca": "a"}}), []string{"identity", "exclude each other"}},
		"an identity of nothing":     {with("identity", m{"insecure": false}), []string{"identity", "nothing configured"}},
		"local beside the service":   {with("local", m{"component": "mdns"}), []string{"local: is for running without a service"}},
		"a bad namespace":            {with("resolverNamespace", "A"), []string{"resolverNamespace"}},
		"no local beside a store":    {alone("local", nil), []string{"local.component: is missing"}},
		"local without a component":  {alone("local", m{"version": "v1"}), []string{"local.component: is missing"}},
		"an identity beside a store": {alone("identity", insecure()), []string{"identity: is for the resolver service"}},
		"advertise beside a store":   {alone("advertise", "10.0.0.1"), []string{"advertise: is for the resolver service"}},
	} {
		_, err := parseConfig(test.configuration)
		if err == nil {
			t.Errorf("%s: taken", what)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", what, err, want)
			}
		}
	}
}

func TestWhatIsAdvertised(t *testing.T) {
	for _, test := range []struct{ advertise, own, want string }{
		{"", "10.0.0.1", "10.0.0.1:50002"},
		{"", "fd00::1", "[fd00::1]:50002"},
		{"", "::ffff:10.0.0.1", "10.0.0.1:50002"},
		{"192.0.2.1", "10.0.0.1", "192.0.2.1:50002"},
		{"192.0.2.1:6000", "10.0.0.1", "192.0.2.1:6000"},
		{"[fd00::2]:6000", "", "[fd00::2]:6000"},
		{"fd00::2", "", "[fd00::2]:50002"},
		{"", "", "ERROR this sidecar"},
		{"", "pod-7.example", "ERROR this sidecar"},
		{"gw.example", "10.0.0.1", "ERROR advertise"},
		{"0.0.0.0", "10.0.0.1", "ERROR advertise"},
		{"10.0.0.1:0", "10.0.0.1", "ERROR advertise"},
		{"fe80::1%eth0", "10.0.0.1", "ERROR advertise"},
	} {
		c := &config{Advertise: test.advertise}
		got, err := c.advertised(Instance{Address: test.own, Port: 50002})
		if key, wantErr := strings.CutPrefix(test.want, "ERROR "); wantErr {
			if err == nil || !strings.Contains(err.Error(), key) {
				t.Errorf("advertise %q, own %q: %q, %v", test.advertise, test.own, got, err)
			}
		} else if got != test.want || err != nil {
			t.Errorf("advertise %q, own %q: %q, %v; want %q", test.advertise, test.own, got, err, test.want)
		}
	}
}

// FuzzConfig holds that no configuration makes a panic: a text that stands for the
// value of each key, in the shapes that YAML knows.
func FuzzConfig(f *testing.F) {
	f.Add("resolver", "127.0.0.1:7400", byte(0))
	f.Add("resolver", "127.0.0.1:7400, resolver.example:7400,unix:///x", byte(0))
	f.Add("identity", "insecure", byte(3))
	f.Add("store", "file", byte(4))
	f.Fuzz(func(t *testing.T, key, value string, shape byte) {
		var v any
		switch shape % 7 {
		case 0:
			v = value
		case 1:
			v = []any{value, nil, map[any]any{value: 1}}
		case 2:
			v = float64(len(value))
		case 3:
			v = map[any]any{value: true}
		case 4:
			v = m{value: m{value: value}}
		case 5:
			v = nil
		case 6:
			v = map[any]any{nil: value, 1.5: value}
		}
		_, _ = parseConfig(m{key: v, "cluster": "west", "resolver": "127.0.0.1:1"})
		_, _ = parseConfig(map[any]any{key: v})
	})
}

// The page has each key once, and no other.
func TestThePageHasEveryKey(t *testing.T) {
	page, err := os.ReadFile("../docs/reference/sidecar.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Every key\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var documented []string
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		above := ""
		for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			name := key[1]
			if strings.HasPrefix(name, ".") { // beside the one before it
				name = above + name
			} else if at := strings.LastIndex(name, "."); at > 0 {
				above = name[:at]
			}
			documented = append(documented, name)
		}
	}
	want := keysOf("", reflect.TypeFor[config]())
	slices.Sort(documented)
	slices.Sort(want)
	if !slices.Equal(documented, want) {
		t.Errorf("the page has %q,\nthe code %q", documented, want)
	}
	if !strings.Contains(table, "`"+DefaultResolveTimeout.String()+"`") || !strings.Contains(table, "`"+catalog.DefaultDomain+"`") || !strings.Contains(table, "`"+identity.SystemNamespace+"`") {
		t.Error("the page lacks a default")
	}
}

// keysOf are the keys that a configuration may have. Sentry's stand on the service's page.
func keysOf(prefix string, of reflect.Type) (keys []string) {
	for field := range of.Fields() {
		key := field.Tag.Get("json")
		at, _, _ := strings.Cut(prefix+key, ",")
		typ := field.Type
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case key == "" || key == "-":
		case at == "identity.sentry":
			keys = append(keys, at+".address")
		case typ.Kind() == reflect.Struct:
			keys = append(keys, keysOf(at+".", typ)...)
		default:
			keys = append(keys, at)
		}
	}
	return keys
}
