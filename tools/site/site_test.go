package main

import (
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	reference = regexp.MustCompile(` (?:href|src)="([^"]*)"`)
	identity  = regexp.MustCompile(` id="([^"]*)"`)
)

// TestLinksOfTheSiteResolve holds every link of every page to a file of the site, and to a place in it.
func TestLinksOfTheSiteResolve(t *testing.T) {
	out := t.TempDir()
	if err := build("../..", out); err != nil {
		t.Fatal(err)
	}
	ids, texts := map[string]map[string]bool{}, map[string]string{}
	err := fs.WalkDir(os.DirFS(out), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path.Join(out, name))
		ids[name] = map[string]bool{}
		if path.Ext(name) == ".html" {
			texts[name] = string(text)
			for _, m := range identity.FindAllStringSubmatch(string(text), -1) {
				ids[name][m[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for name, text := range texts {
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			u, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if u.IsAbs() {
				if rest, ours := strings.CutPrefix(m[1], repository); ours {
					if _, err := os.Stat(path.Join("../..", rest)); err != nil {
						t.Errorf("%s links to a file that is not in the repository: %v", name, err)
					}
				}
				continue
			}
			links++
			to := name
			if u.Path != "" {
				to = path.Join(path.Dir(name), u.Path)
			}
			if ids[to] == nil || u.Fragment != "" && !ids[to][u.Fragment] {
				t.Errorf("%s links to %s, which is not in the site", name, m[1])
			}
		}
	}
	if links < 1000 {
		t.Errorf("the site has %d links", links)
	}
}
