package consul

import (
	"errors"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/settings"
	"github.com/isthmus-mesh/isthmus/resolver-service/sources/instances/instancestest"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/servers/serverstest"
)

func checked(c Config) Config {
	if err := c.Check(); err != nil {
		panic(err)
	}
	return c
}

func TestWhatARegistrationComesTo(t *testing.T) {
	plain := Config{}
	for _, c := range []struct {
		what   string
		config Config
		change func(e *api.ServiceEntry)
		want   string // of the instance, or what the refusal says; empty for neither
	}{
		{"as Dapr's resolver registers it", plain, func(*api.ServiceEntry) {}, "default/orders n1/orders-1 10.0.0.1:50002"},
		{"without an address of its own", plain, func(e *api.ServiceEntry) { e.Service.Address = "" }, "default/orders n1/orders-1 10.9.9.9:50002"},
		{"without any address", plain, func(e *api.ServiceEntry) { e.Service.Address, e.Node.Address = "", "" }, "neither it nor its node has an address"},
		{"by IPv6", plain, func(e *api.ServiceEntry) { e.Service.Address = "fd00::1" }, "default/orders n1/orders-1 [fd00::1]:50002"},
		{"by a name", plain, func(e *api.ServiceEntry) { e.Service.Address = "host.example" }, `"host.example" is no IP`},
		{"without the port", plain, func(e *api.ServiceEntry) { e.Service.Meta = nil }, "it has no DAPR_PORT"},
		{"with a port that is none", plain, func(e *api.ServiceEntry) { e.Service.Meta["DAPR_PORT"] = "65536" }, `DAPR_PORT is "65536"`},
		{"with port 0", plain, func(e *api.ServiceEntry) { e.Service.Meta["DAPR_PORT"] = "0" }, `DAPR_PORT is "0"`},
		{"with another key for the port", Config{PortMeta: "port"}, func(e *api.ServiceEntry) { e.Service.Meta["port"] = "7" }, "default/orders n1/orders-1 10.0.0.1:7"},
		{"a proxy of the mesh", plain, func(e *api.ServiceEntry) { e.Service.Kind = api.ServiceKindConnectProxy }, ""},
		{"in another namespace", Config{AppNamespace: "shop"}, func(*api.ServiceEntry) {}, "shop/orders n1/orders-1 10.0.0.1:50002"},
		{"in a namespace of its own", Config{NamespaceMeta: "ns"}, func(e *api.ServiceEntry) { e.Service.Meta["ns"] = "finance" }, "finance/orders n1/orders-1 10.0.0.1:50002"},
		{"in none of its own", Config{NamespaceMeta: "ns", AppNamespace: "shop"}, func(*api.ServiceEntry) {}, "shop/orders n1/orders-1 10.0.0.1:50002"},
		{"in a zone", Config{ZoneMeta: "zone"}, func(e *api.ServiceEntry) { e.Service.Meta["zone"] = "a" }, "default/orders n1/orders-1 10.0.0.1:50002 in a"},
		{"of a version", Config{}, func(e *api.ServiceEntry) { e.Service.Meta["version"] = "2.1" }, "default/orders n1/orders-1 10.0.0.1:50002 version 2.1"},
		{"in its node's zone", Config{ZoneMeta: "zone"}, func(e *api.ServiceEntry) { e.Node.Meta = map[string]string{"zone": "b"} }, "default/orders n1/orders-1 10.0.0.1:50002 in b"},
		{"critical", plain, func(e *api.ServiceEntry) { e.Checks[1].Status = api.HealthCritical }, "default/orders n1/orders-1 10.0.0.1:50002 draining"},
		{"its node critical", plain, func(e *api.ServiceEntry) { e.Checks[0].Status = api.HealthCritical }, "default/orders n1/orders-1 10.0.0.1:50002 draining"},
		{"in maintenance", plain, func(e *api.ServiceEntry) { e.Checks[1].Status = api.HealthMaint }, "default/orders n1/orders-1 10.0.0.1:50002 draining"},
		{"warning", plain, func(e *api.ServiceEntry) { e.Checks[1].Status = api.HealthWarning }, "default/orders n1/orders-1 10.0.0.1:50002 draining"},
		{"warning, which is well", Config{WarningIsReady: true}, func(e *api.ServiceEntry) { e.Checks[1].Status = api.HealthWarning }, "default/orders n1/orders-1 10.0.0.1:50002"},
		{"critical, where warning is well", Config{WarningIsReady: true}, func(e *api.ServiceEntry) { e.Checks[1].Status = api.HealthCritical }, "default/orders n1/orders-1 10.0.0.1:50002 draining"},
		{"without checks", plain, func(e *api.ServiceEntry) { e.Checks = nil }, "default/orders n1/orders-1 10.0.0.1:50002"},
	} {
		e := &api.ServiceEntry{
			Node:    &api.Node{Node: "n1", Address: "10.9.9.9"},
			Service: &api.AgentService{ID: "orders-1", Service: "orders", Address: "10.0.0.1", Meta: map[string]string{"DAPR_PORT": "50002"}},
			Checks:  api.HealthChecks{{Status: api.HealthPassing}, {Status: api.HealthPassing, ServiceID: "orders-1"}},
		}
		c.change(e)
		config := checked(c.config)
		now := config.service("orders", []*api.ServiceEntry{e, nil})
		var got []string
		for _, i := range now.instances {
			got = append(got, said(i))
		}
		for _, r := range now.refused {
			if r.Where != "service orders, instance orders-1 on node n1" {
				t.Errorf("%s: refused as %q", c.what, r.Where)
			}
			got = append(got, r.Err.Error())
		}
		if text := strings.Join(got, "; "); !strings.HasPrefix(strings.TrimPrefix(text, "its address "), c.want) || c.want == "" && text != "" || strings.HasPrefix(c.want, "default") && text != c.want {
			t.Errorf("%s: %q, want %q", c.what, text, c.want)
		}
	}
}

func said(i catalog.Instance) string {
	text := i.App.String() + " " + i.ID + " " + i.Address.String()
	if i.Zone != "" {
		text += " in " + i.Zone
	}
	if i.Version != "" {
		text += " version " + i.Version
	}
	if i.Draining {
		text += " draining"
	}
	return text
}

func TestSettings(t *testing.T) {
	for want, c := range map[string]Config{
		"address: ":      {Address: "ftp://x"},
		"appNamespace: ": {AppNamespace: "Not One"},
		"portMeta: ":     {PortMeta: `a"b`},
		"tag: ":          {Tag: strings.Repeat("x", 200)},
		"zoneMeta: ":     {ZoneMeta: "a\nb"},
		"versionMeta: ":  {VersionMeta: "a\nb"},
		"token: ":        {Token: &settings.Secret{}},
		"tls: ":          {TLS: &settings.TLS{}},
	} {
		if err := c.Check(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v; want an error about %q", err, want)
		}
	}
	c := checked(Config{Tag: "dapr"})
	if got, want := c.filter(), `"DAPR_PORT" in ServiceMeta and ServiceKind == "" and "dapr" in ServiceTags`; got != want {
		t.Errorf("asks for %s, want %s", got, want)
	}
}

// FuzzFilter holds that no setting gets out of its quotes.
func FuzzFilter(f *testing.F) {
	f.Add("DAPR_PORT", "dapr")
	f.Fuzz(func(t *testing.T, key, tag string) {
		c := Config{PortMeta: key, Tag: tag}
		if c.Check() == nil && strings.Count(c.filter(), `"`)%2 != 0 {
			t.Errorf("%q and %q make %s", key, tag, c.filter())
		}
	})
}

func TestOnlyServicesWithTheTagAreTaken(t *testing.T) {
	agent := theAgent(t)
	for _, name := range []string{"orders", "billing"} {
		r := &api.AgentServiceRegistration{ID: name, Name: name, Address: "10.0.0.1", Meta: map[string]string{"DAPR_PORT": "50002"}}
		if name == "orders" {
			r.Tags = []string{"blue"}
		}
		if err := agent.ServiceRegister(r); err != nil {
			t.Fatal(err)
		}
	}
	c := configOf(t, shared.token)
	f := instancestest.Follow(t, newSource(t, c))
	serverstest.Await(t, "both", func() bool { return f.Count(known) == 2 })
	c.Tag = "blue"
	one := instancestest.Follow(t, newSource(t, c))
	serverstest.Await(t, "one", func() bool { return one.Status().Ready })
	serverstest.Await(t, "that with the tag", func() bool { return one.Count(known) == 1 })
}

// TestMaintenanceAndNodes: what an operator does on an agent.
func TestMaintenanceOfAServiceAndOfItsNode(t *testing.T) {
	agent := theAgent(t)
	i := catalog.Instance{App: catalog.App{Namespace: "shop", ID: "orders"}, ID: "one", Address: addressOf("10.0.0.1:50002")}
	register(t, i)
	f := instancestest.Follow(t, newSource(t, configOf(t, shared.token)))
	draining := func(i catalog.Instance) bool { return i.Draining }
	serverstest.Await(t, "one", func() bool { return f.Count(known) == 1 && f.Count(draining) == 0 })
	for what, change := range map[string]struct{ on, off func() error }{
		"service": {func() error { return agent.EnableServiceMaintenance(idOf(i), "x") }, func() error { return agent.DisableServiceMaintenance(idOf(i)) }},
		"node":    {func() error { return agent.EnableNodeMaintenance("x") }, agent.DisableNodeMaintenance},
	} {
		if err := change.on(); err != nil {
			t.Fatal(err)
		}
		serverstest.Await(t, "maintenance of the "+what, func() bool { return f.Count(draining) == 1 })
		if err := change.off(); err != nil {
			t.Fatal(err)
		}
		serverstest.Await(t, "the end of it", func() bool { return f.Count(draining) == 0 })
	}
}

// TestWithoutATokenNothingIsEmpty is about what Consul answers with an empty list and no
// word of what it left out.
func TestWithoutATokenNothingIsEmpty(t *testing.T) {
	theAgent(t)
	f := instancestest.Follow(t, newSource(t, configOf(t, "")))
	serverstest.Await(t, "an error", func() bool { return f.Status().Err != nil })
	if s := f.Status(); s.Ready || !errors.Is(s.Err, configstore.ErrDenied) || !strings.Contains(s.Err.Error(), `service_prefix "" { policy = "read" }`) {
		t.Errorf("status %+v; want ErrDenied, and the policy", s)
	}
}

// TestAPolicyThatLeavesSomethingOutTakesNothingAway narrows a token while it is in use.
func TestAPolicyThatLeavesSomethingOutTakesNothingAway(t *testing.T) {
	agent := theAgent(t)
	i := catalog.Instance{App: catalog.App{Namespace: "shop", ID: "orders"}, ID: "one", Address: addressOf("10.0.0.1:50002")}
	register(t, i)
	token := shared.NewToken(t, rights)
	f := instancestest.Follow(t, newSource(t, configOf(t, token)))
	serverstest.Await(t, "one", func() bool { return f.Count(known) == 1 })
	own, _, err := shared.Admin.ACL().TokenReadSelf(&api.QueryOptions{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	policy, _, err := shared.Admin.ACL().PolicyRead(own.Policies[0].ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	policy.Rules = `service_prefix "" { policy = "read" } service "orders" { policy = "deny" } node_prefix "" { policy = "read" }`
	if _, _, err := shared.Admin.ACL().PolicyUpdate(policy, nil); err != nil {
		t.Fatal(err)
	}
	if err := agent.ServiceRegister(&api.AgentServiceRegistration{Name: "other"}); err != nil { // which answers the questions that wait
		t.Fatal(err)
	}
	serverstest.Await(t, "an error", func() bool { return errors.Is(f.Status().Err, configstore.ErrDenied) })
	if f.Count(known) != 1 {
		t.Error("what the token may not read any more was taken away")
	}
}
