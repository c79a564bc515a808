// Vulncheck fails when a known vulnerability reaches what Isthmus ships. It runs govulncheck
// on a stored copy of the Go vulnerability database, so it needs no network.
//
//	go run ./vulncheck           check
//	go run ./vulncheck -update P make the stored copy again from P, a clone of golang/vulndb
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// target is a module that is checked.
type target struct {
	dir      string // from the root of the repository
	packages string
	// level is "symbol" where an advisory counts if its code can be called, and "package" where
	// it counts if its package is linked. The call graph of daprd takes 11 GB and minutes.
	level string
	tags  string
}

var shipped = []target{
	{dir: ".", packages: "./...", level: "symbol", tags: "clouds"},
	{dir: "components/daprd", packages: ".", level: "package", tags: "stablecomponents"},
}

const (
	copyFile     = "vulncheck/osv.json.gz"
	acceptedFile = "vulncheck/accepted.txt"
)

func main() {
	from := flag.String("update", "", "make the stored copy again from a git repository of golang/vulndb")
	flag.Parse()
	err := errors.New("run it in the folder tools, by \"make vulncheck\"")
	if _, missing := os.Stat(acceptedFile); missing == nil {
		if *from != "" {
			err = update(*from, copyFile)
		} else {
			err = run(os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	text, err := os.ReadFile(acceptedFile)
	if err != nil {
		return err
	}
	allowed, err := parseAccepted(string(text))
	if err != nil {
		return err
	}
	db, err := os.MkdirTemp("", "isthmus-vulndb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(db)
	about, err := unpack(copyFile, db)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d advisories, as of %s\n", about.Advisories, about.Date)
	failed := 0
	for _, t := range shipped {
		found, err := scan(db, filepath.Join("..", t.dir), t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.dir, err)
		}
		failed += judge(out, t.dir, found, allowed)
	}
	failed += unneeded(out, allowed)
	if failed > 0 {
		return fmt.Errorf("%d problems; upgrade the modules named, or see docs/how-to/development.md", failed)
	}
	return nil
}
