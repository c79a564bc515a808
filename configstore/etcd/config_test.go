package etcd

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore"
	"github.com/isthmus-mesh/isthmus/internal/settings"
)

func TestMistakesInTheConfigurationAreNamed(t *testing.T) {
	one := []string{"127.0.0.1:2379"}
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"no endpoint":             {Config{}, "endpoints: is missing"},
		"no port":                 {Config{Endpoints: []string{"127.0.0.1"}}, "endpoints[0]: \"127.0.0.1\": want host:port"},
		"another scheme":          {Config{Endpoints: []string{"ftp://127.0.0.1:2379"}}, "want host:port, http://host:port or https://host:port"},
		"a path":                  {Config{Endpoints: []string{"http://127.0.0.1:2379/v3"}}, "nothing after it"},
		"a password":              {Config{Endpoints: []string{"http://root:hunter2@127.0.0.1:2379"}}, "put it into username and password"},
		"TLS to a plain endpoint": {Config{Endpoints: []string{"http://127.0.0.1:2379"}, TLS: &settings.TLS{}}, "is without TLS"},
		"some with TLS":           {Config{Endpoints: []string{"http://127.0.0.1:2379", "https://127.0.0.1:2380"}}, "some are https"},
		"a user alone":            {Config{Endpoints: one, Username: "isthmus"}, "username and password go together"},
		"a password nowhere":      {Config{Endpoints: one, Username: "isthmus", Password: &settings.Secret{}}, "password: does not say where the secret is"},
		"half a certificate":      {Config{Endpoints: one, TLS: &settings.TLS{Cert: "cert.pem"}}, "tls: cert and key go together"},
		"no CA":                   {Config{Endpoints: one, TLS: &settings.TLS{CA: "/nowhere/ca.pem"}}, "tls: ca: open /nowhere/ca.pem"},
		"a long prefix":           {Config{Endpoints: one, Prefix: strings.Repeat("p", 513)}, "prefix: is 513 bytes long"},
		"no time":                 {Config{Endpoints: one, Timeout: -time.Second}, "timeout"},
		"no room":                 {Config{Endpoints: one, MaxRequestBytes: 100}, "maxRequestBytes: 100"},
		"no writes":               {Config{Endpoints: one, MaxTxnOps: -1}, "maxTxnOps: -1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Open(c.config, configstore.Scope{}, slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("")
	f.Add("1-2-3--")
	f.Add(string(place{cluster: 1, term: 2, revision: 3, witness: witness{"isthmus/v1alpha1/Cluster/east", "0011"}}.version()))
	f.Add(string(place{cluster: 1, term: 2, revision: 3, witness: witness{"\xff\xfe\xfb", ""}}.version()))
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parseVersion(configstore.Version(text))
		if ok && string(p.version()) != text {
			t.Errorf("%q was read as %q", text, p.version())
		}
		if again, ok := parseVersion(p.version()); ok && again != p {
			t.Errorf("%+v became %+v", p, again)
		}
	})
}
