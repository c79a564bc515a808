package servers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/crypto/bcrypt"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
)

// DexClient is an application that people sign in to.
type DexClient struct {
	ID        string
	Secret    string   // empty for a public client, which proves itself by PKCE alone
	Redirects []string // where it may have people sent back
}

// DexPerson is one who can sign in.
type DexPerson struct {
	Email, Password string
	Groups          []string
}

// DexOptions says how a Dex is run.
type DexOptions struct {
	Clients []DexClient
	People  []DexPerson

	// Issuer is its URL where that is not its own, but a proxy's in front of it; its path is /dex.
	Issuer string

	// Settings are more keys of the configuration, such as "expiry".
	Settings map[string]any
}

// Dex is a provider of OpenID Connect. It serves HTTPS on 127.0.0.1 with a certificate of an
// authority of its own, and asks nobody to approve that an application knows who they are. What
// it keeps is in memory: after a Kill it has other keys.
type Dex struct {
	process   *sandbox.Process
	authority *sandbox.Authority
	address   string // host:port
	issuer    string
}

// StartDex starts a Dex, with its configuration, certificate and log in dir, and waits until it
// answers.
func StartDex(ctx context.Context, dir string, o DexOptions) (*Dex, error) {
	binary, err := sandbox.Binary("dex")
	if err != nil {
		return nil, err
	}
	port, err := sandbox.FreePort()
	if err != nil {
		return nil, err
	}
	d := &Dex{address: hostPort(port), issuer: o.Issuer}
	if d.issuer == "" {
		d.issuer = "https://" + d.address + dexPath
	}
	config, err := d.configure(dir, o)
	if err != nil {
		return nil, fmt.Errorf("start Dex: %w", err)
	}
	d.process, err = sandbox.Start(sandbox.Command{Name: "dex", Path: binary, Args: []string{"serve", config}, LogDir: dir})
	if err != nil {
		return nil, err
	}
	if err := awaitReady(ctx, d.process, d.answers); err != nil {
		return nil, errors.Join(err, d.Kill())
	}
	return d, nil
}

// configure writes the configuration and the certificate, and returns the path of the former.
func (d *Dex) configure(dir string, o DexOptions) (string, error) {
	var err error
	if d.authority, err = sandbox.NewAuthority(); err != nil {
		return "", err
	}
	cert, key, err := d.authority.Server("127.0.0.1")
	if err != nil {
		return "", err
	}
	people, err := o.people()
	if err != nil {
		return "", err
	}
	files := map[string][]byte{
		"dex.crt": slices.Concat(cert, d.authority.Anchors()), // with its authority, so that a browser can be told to trust that
		"dex.key": key,
	}
	config := map[string]any{
		"issuer": d.issuer, "storage": map[string]any{"type": "memory"},
		"web":              map[string]any{"https": d.address, "tlsCert": filepath.Join(dir, "dex.crt"), "tlsKey": filepath.Join(dir, "dex.key")},
		"oauth2":           map[string]any{"skipApprovalScreen": true},
		"enablePasswordDB": true, "staticPasswords": people, "staticClients": o.clients(),
	}
	maps.Copy(config, o.Settings)
	if files["dex.json"], err = json.MarshalIndent(config, "", "  "); err != nil {
		return "", err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "dex.json"), nil
}

func (o DexOptions) clients() []map[string]any {
	all := []map[string]any{}
	for _, c := range o.Clients {
		all = append(all, map[string]any{"id": c.ID, "name": c.ID, "secret": c.Secret, "public": c.Secret == "", "redirectURIs": c.Redirects})
	}
	return all
}

func (o DexOptions) people() ([]map[string]any, error) {
	all := []map[string]any{}
	for _, p := range o.People {
		hash, err := bcrypt.GenerateFromPassword([]byte(p.Password), bcrypt.DefaultCost) // Dex takes no lower one
		if err != nil {
			return nil, fmt.Errorf("hash the password of %s: %w", p.Email, err)
		}
		all = append(all, map[string]any{"email": p.Email, "username": p.Email, "userID": p.Email, "hash": string(hash), "groups": p.Groups})
	}
	return all, nil
}

// answers tells whether it says what it can do.
func (d *Dex) answers() bool {
	client := d.Client()
	client.Timeout = answerLimit
	defer client.CloseIdleConnections()
	res, err := client.Get("https://" + d.address + dexPath + "/.well-known/openid-configuration")
	if err != nil {
		return false
	}
	res.Body.Close()
	return res.StatusCode == http.StatusOK
}

// Client is a new client of HTTP that trusts the server's authority, and nobody else.
func (d *Dex) Client() *http.Client {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(d.Anchors())
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
}

// dexPath is the path of every issuer.
const dexPath = "/dex"

// Issuer is the provider's URL, from which clients find all others.
func (d *Dex) Issuer() string { return d.issuer }

// Addr is where clients connect to, host:port.
func (d *Dex) Addr() string { return d.address }

// Anchors is the certificate of the server's authority, in PEM. The server sends it along.
func (d *Dex) Anchors() []byte { return d.authority.Anchors() }

// Kill ends the server with SIGKILL.
func (d *Dex) Kill() error { return d.process.Kill() }
