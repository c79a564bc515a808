package api

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"math/big"
	"strings"
	"testing"

	"github.com/isthmus-mesh/isthmus/api/apitest"
	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/strict"
)

func TestRootsAreKeptWithNothingElse(t *testing.T) {
	text := apitest.Trusting("Issuer: east\r\n" + apitest.EastRoot + "\n# and\n" + apitest.NorthRoot)
	objects, errs := DecodeYAML("f.yaml", []byte(text))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := catalog.Trust{Domain: "east.example", Roots: apitest.EastRoot + apitest.NorthRoot}
	if got := objects[0].(*catalog.Cluster).Trust; got != want {
		t.Errorf("trust is %+v, want %+v", got, want)
	}
	if yaml := string(EncodeYAML(objects[0])); !strings.Contains(yaml, "    roots: |\n      -----BEGIN CERTIFICATE-----\n      MII") {
		t.Errorf("roots are not written as they are read:\n%s", yaml)
	}
}

// TestAKeyIsNotRepeated holds that no error has a part of a key in it, wherever it was put.
func TestAKeyIsNotRepeated(t *testing.T) {
	secret := strings.Split(apitest.Key, "\n")[1]
	key := strings.ReplaceAll(apitest.Key, "\n", `\n`)
	for _, text := range []string{
		apitest.Trusting(apitest.Key),
		apitest.Trusting(apitest.EastRoot + strings.ReplaceAll(apitest.Key, "\n", " ")),
		apitest.Trusting(strings.TrimSuffix(apitest.Key, "-----END EC PRIVATE KEY-----\n")),
		apitest.Object("Cluster", "{name: east}", `{network: a, trust: {domain: "`+key+`"}}`),
		apitest.Object("Cluster", "{name: east}", `{network: a, trust: "`+key+`"}`),
		apitest.Object("Cluster", "{name: east}", `{network: a, trust: {root: "`+key+`"}}`),
		apitest.Object("Cluster", "{name: east}", `{network: a, trust: {roots: ["`+key+`"]}}`),
	} {
		objects, errs := DecodeYAML("f.yaml", []byte(text))
		if len(objects) != 0 || len(errs) == 0 || strings.Contains(errs.Error(), secret) {
			t.Errorf("%s\nis taken for %v; it says %v", text, objects, errs)
		}
	}
}

// TestRootsAreNotTooLongOnceTheyAreStored: lines that were longer become more.
func TestRootsAreNotTooLongOnceTheyAreStored(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text := func(extra int) string {
		template := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "east"}, IsCA: true, BasicConstraintsValid: true,
			ExtraExtensions: []pkix.Extension{{Id: []int{1, 2, 3, 4}, Value: make([]byte, extra)}},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return "-----BEGIN CERTIFICATE-----\n" + base64.StdEncoding.EncodeToString(der) + "\n-----END CERTIFICATE-----\n"
	}
	for extra, taken := range map[int]bool{47_000: true, 48_350: false} {
		given := text(extra)
		if len(given) > MaxRootsBytes {
			t.Fatalf("%d bytes are too long as they are", len(given))
		}
		objects, errs := DecodeYAML("f.yaml", []byte(apitest.Trusting(given)))
		if (len(objects) == 1) != taken || !taken && !strings.Contains(errs.Error(), "in lines of 64 characters") {
			t.Errorf("%d bytes: %d objects, %v", len(given), len(objects), errs)
		}
		for _, obj := range objects {
			if _, errs := DecodeYAML("f.yaml", EncodeYAML(obj)); len(errs) > 0 {
				t.Errorf("%d bytes are taken, and refused when they are read again: %v", len(given), errs)
			}
		}
	}
}

// FuzzRoots holds that what is taken for roots reads the same again.
func FuzzRoots(f *testing.F) {
	f.Add(apitest.EastRoot + apitest.NorthRoot)
	f.Add(apitest.EastRoot[:100] + apitest.Key)
	f.Add("-----BEGIN CERTIFICATE-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END CERTIFICATE-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		v := clusterValidator{&validator{written{report: &strict.Report{}}}}
		roots := v.roots("spec.trust.roots", text)
		if (roots == "") != (len(v.report.Errors) > 0) {
			t.Fatalf("%q and the errors %v", roots, v.report.Errors)
		}
		if again := v.roots("spec.trust.roots", roots); roots != "" && again != roots {
			t.Fatalf("%q is read again as %q", roots, again)
		}
	})
}
