// Package browser lets tests use pages as people do: in a real Chromium, by what is written on a
// link, a button or a label, by keys alone, at any width, in the dark, without scripts. It keeps
// an eye on what people do not see: errors of the console, violations of the Content Security
// Policy, requests that fail, and what axe-core finds.
package browser

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/isthmus-mesh/isthmus/tests/sandbox/programs/programstest"
)

// limit is how long one step of a test may take: a busy machine is no fault of a page.
const limit = time.Minute

// Options say how a browser is started. The zero value knows localhost and 127.0.0.1, and trusts
// no certificate.
type Options struct {
	// Trust are certificates in PEM that the browser accepts, for any name: those of the servers
	// themselves, or of an authority that servers send with their own.
	Trust []byte

	// Hosts are names that lead to addresses: "console.example" to "127.0.0.1". No other name
	// leads anywhere, so no page reaches what is outside of this machine.
	Hosts map[string]string
}

// Browser is a Chromium without a window, with a profile of its own. It ends with its test.
type Browser struct {
	ctx context.Context
}

// Start starts a browser.
func Start(t testing.TB, o Options) *Browser {
	t.Helper()
	path := programstest.Path(t, "chromium")
	profile := t.TempDir()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path), chromedp.UserDataDir(profile), chromedp.Env("HOME="+profile),
		chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-crash-reporter", true),
		chromedp.Flag("host-resolver-rules", o.resolver()),
	)
	if len(o.Trust) > 0 {
		options = append(options, chromedp.Flag("ignore-certificate-errors-spki-list", o.keys(t)))
	}
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	alloc, endAlloc := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, end := chromedp.NewContext(alloc, chromedp.WithErrorf(ignore), chromedp.WithLogf(ignore))
	t.Cleanup(func() {
		closing, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		if err := chromedp.Cancel(closing); err != nil {
			t.Errorf("end the browser: %v", err)
		}
		end()
		endAlloc()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Browser{ctx}
}

// ignore is for what chromedp says of messages that a newer browser sends.
func ignore(string, ...any) {}

// resolver are the rules for names, in Chromium's words.
func (o Options) resolver() string {
	rules := []string{}
	for _, host := range slices.Sorted(maps.Keys(o.Hosts)) {
		rules = append(rules, fmt.Sprintf("MAP %s %s", host, o.Hosts[host]))
	}
	return strings.Join(append(rules, "MAP * ~NOTFOUND", "EXCLUDE localhost", "EXCLUDE 127.0.0.1"), ",")
}

// keys are the hashes of the public keys of trusted certificates, in Chromium's words.
func (o Options) keys(t testing.TB) string {
	t.Helper()
	var keys []string
	for block, rest := pem.Decode(o.Trust); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatalf("trust a certificate: %v", err)
		}
		hash := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		keys = append(keys, base64.StdEncoding.EncodeToString(hash[:]))
	}
	return strings.Join(keys, ",")
}
