// Command site writes the documentation as a static site with search. Pages keep their paths, with
// .html for .md, so the site works from any folder, also without a server. "make site" runs it.
package main

import (
	"cmp"
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"html/template"
	"io/fs"
	"log"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// repository has the files that pages link to and the site has not.
const repository = "https://github.com/isthmus-mesh/isthmus/blob/main/"

//go:embed assets
var assets embed.FS

var layout = template.Must(template.ParseFS(assets, "assets/page.html"))

// sections are the parts of the navigation, by folder.
var sections = []struct{ Name, Folder string }{
	{"Start", ""}, {"Tutorials", "docs/tutorials"}, {"How-to", "docs/how-to"},
	{"Reference", "docs/reference"}, {"Explanation", "docs/explanation"},
}

func main() {
	log.SetFlags(0)
	root := flag.String("root", "..", "the repository")
	out := flag.String("o", "../dist/site", "folder to write, which is emptied first")
	flag.Parse()
	if err := build(*root, *out); err != nil {
		log.Fatal(err)
	}
}

// build writes the site of a repository into a folder.
func build(root, out string) error {
	pages, err := read(root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	var index []entry
	for _, p := range pages {
		var html strings.Builder
		if err := layout.Execute(&html, view(p, pages)); err != nil {
			return fmt.Errorf("%s: %w", p.source, err)
		}
		if err := write(out, p.target, []byte(html.String())); err != nil {
			return err
		}
		index = append(index, p.entries...)
	}
	text, err := json.Marshal(index)
	if err != nil {
		return err
	}
	// A script and not JSON, so that search works from a folder, too.
	if err := write(out, "index.js", slices.Concat([]byte("const pages = "), text, []byte(";\n"))); err != nil {
		return err
	}
	for _, name := range []string{"site.css", "site.js"} {
		text, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return err
		}
		if err := write(out, name, text); err != nil {
			return err
		}
	}
	return os.CopyFS(filepath.Join(out, "docs/pictures"), os.DirFS(filepath.Join(root, "docs/pictures")))
}

// read has every page of the repository that readers get, in the order of the navigation.
func read(root string) (pages []*page, err error) {
	names := []string{"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"}
	err = fs.WalkDir(os.DirFS(root), "docs", func(name string, _ fs.DirEntry, err error) error {
		if err == nil && path.Ext(name) == ".md" {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		pages = append(pages, render(name, text, names))
	}
	slices.SortStableFunc(pages, func(a, b *page) int { return cmp.Compare(strings.ToLower(a.title), strings.ToLower(b.title)) })
	return pages, nil
}

func write(out, name string, text []byte) error {
	name = filepath.Join(out, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text, 0o644)
}

// target is where the page of a file is in the site.
func target(source string) string {
	return strings.Replace(strings.TrimSuffix(source, ".md")+".html", "README.html", "index.html", 1)
}

type (
	link struct {
		Title, Href string
		Here        bool
	}
	group struct {
		Name  string
		Open  bool
		Links []link
	}
)

// view is what the layout shows.
func view(p *page, pages []*page) any {
	up := strings.Repeat("../", strings.Count(p.target, "/"))
	var groups []group
	for _, s := range sections {
		g := group{Name: s.Name, Open: s.Folder == ""}
		for _, other := range pages {
			if section(other.source) == s.Folder {
				g.Links = append(g.Links, link{other.title, up + other.target, other == p})
				g.Open = g.Open || other == p
			}
		}
		groups = append(groups, g)
	}
	return map[string]any{"Title": p.title, "Up": up, "Groups": groups, "Body": template.HTML(p.body), "Source": repository + p.source}
}

// section is the folder of a page's section.
func section(source string) string {
	if parts := strings.SplitN(source, "/", 3); len(parts) == 3 {
		return parts[0] + "/" + parts[1]
	}
	return ""
}
