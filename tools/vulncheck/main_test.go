package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// database is the stored copy, unpacked.
func database(t *testing.T) string {
	t.Helper()
	db := t.TempDir()
	a, err := unpack(filepath.Base(copyFile), db)
	if err != nil {
		t.Fatal(err)
	}
	if a.Advisories < 4000 || a.License != "CC-BY-4.0" || len(a.Commit) != 40 {
		t.Fatalf("the stored copy: %+v", a)
	}
	return db
}

// TestCaught holds the check to a program that calls what an advisory names.
func TestCaught(t *testing.T) {
	db := database(t)
	for _, level := range []string{"symbol", "package"} {
		t.Run(level, func(t *testing.T) {
			found, err := scan(db, "testdata/caught", target{packages: "./...", level: level})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if failed := judge(&out, "caught", found, nil); failed == 0 {
				t.Fatalf("nothing found:\n%s", &out)
			}
			for _, want := range []string{"GO-2026-6061", "google.golang.org/grpc v1.80.0", "mended in v1.82.1"} {
				if !strings.Contains(out.String(), want) {
					t.Errorf("want %q in\n%s", want, &out)
				}
			}
			if call := "called by example/caught.main → google.golang.org/grpc.NewClient"; level == "symbol" && !strings.Contains(out.String(), call) {
				t.Errorf("want %q in\n%s", call, &out)
			}
		})
	}
}

func TestAccepted(t *testing.T) {
	allowed, err := parseAccepted("# why\n\n. GO-2026-1111 not called with what users send\n. GO-2026-2222 as well\n")
	if err != nil {
		t.Fatal(err)
	}
	at := []frame{{Module: "example.com/m", Version: "v1.0.0", Package: "example.com/m"}}
	var out bytes.Buffer
	if failed := judge(&out, ".", []finding{{id: "GO-2026-1111", trace: at}}, allowed); failed != 0 {
		t.Errorf("an accepted one fails:\n%s", &out)
	}
	if failed := judge(&out, "other", []finding{{id: "GO-2026-1111", trace: at}}, allowed); failed != 1 {
		t.Errorf("one that is accepted for another module: %d failed", failed)
	}
	if failed := unneeded(&out, allowed); failed != 1 || !strings.Contains(out.String(), "GO-2026-2222 is accepted and no longer found") {
		t.Errorf("%d unneeded:\n%s", failed, &out)
	}
	if _, err := parseAccepted(". GO-2026-1111"); err == nil {
		t.Error("an entry without a reason is taken")
	}
}

// TestGoItself holds that an old Go is told and does not fail the check.
func TestGoItself(t *testing.T) {
	var out bytes.Buffer
	old := finding{id: "GO-2026-1111", fixed: "v1.26.9", trace: []frame{{Module: stdlib, Version: "v1.26.8", Package: "net/http", Function: "Get"}}}
	if failed := judge(&out, ".", []finding{old}, nil); failed != 0 || !strings.Contains(out.String(), "newer Go: GO-2026-1111") {
		t.Errorf("%d failed:\n%s", failed, &out)
	}
}

func TestUnpackRefusesWhatIsNoCopy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "osv.json.gz")
	if err := os.WriteFile(path, []byte("no gzip"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := unpack(path, t.TempDir()); err == nil {
		t.Error("taken")
	}
}
