package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// checksPage has a section for each check; it is in site.
const (
	checksPage = "docs/reference/checks.md"
	site       = "https://github.com/isthmus-mesh/isthmus/blob/main/"
)

// Docs is the address of a page below docs/.
func Docs(page string) string { return site + "docs/" + page }

// Diagnosed completes results, which are sorted: it counts them, and adds their pages.
func Diagnosed(d *v1alpha1.CheckResponse) *v1alpha1.CheckResponse {
	for _, r := range d.GetResults() {
		switch r.GetLevel() {
		case levelOK:
			d.Ok++
		case "warn":
			d.Warn++
		default:
			d.Fail++
		}
		r.Link = site + checksPage + "#" + r.GetCheck()
	}
	return d
}

// levelOK is the level of a result that is well.
const levelOK = "ok"

// width is how many columns people see.
const width = 80

// Diagnose writes the faults, for people: first a line that counts, then the faults.
func Diagnose(w io.Writer, d *v1alpha1.CheckResponse, all bool) error {
	var b strings.Builder
	if d.GetCluster() != "" {
		Say(&b, "cluster %s: ", d.GetCluster())
	}
	Say(&b, "%d failed, %s, %d ok\n", d.GetFail(), Count(int(d.GetWarn()), "warning"), d.GetOk())
	for i, r := range d.GetResults() {
		head := fmt.Sprintf("%-4s  %s  %s", strings.ToUpper(r.GetLevel()), r.GetCheck(), strings.TrimSpace(r.GetKind()+" "+r.GetName()))
		switch {
		case r.GetLevel() != levelOK:
			b.WriteByte('\n')
			wrap(&b, head, "      ")
			wrap(&b, "      "+r.GetFound(), "      ")
			if r.GetFix() != "" {
				wrap(&b, "      fix: "+r.GetFix(), "      ")
			}
			wrap(&b, "      see: "+checksPage+"#"+r.GetCheck(), "      ")
		case all:
			if i == int(d.GetFail()+d.GetWarn()) {
				b.WriteByte('\n')
			}
			wrap(&b, strings.ToLower(head[:4])+head[4:], "      ")
		}
	}
	if !all && d.GetOk() > 0 && d.GetWarn()+d.GetFail() > 0 {
		b.WriteString("\n--all lists those that are ok, too\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// wrap writes a text in lines of at most width columns where its words allow that. Lines after
// the first are indented.
func wrap(b *strings.Builder, text, indent string) {
	text = catalog.Printable(text)
	for len(text) > width {
		end := strings.LastIndexByte(text[:width+1], ' ')
		if end <= len(indent) { // a word that is too long
			if end = strings.IndexByte(text[len(indent):], ' ') + len(indent); end < len(indent) {
				break
			}
		}
		b.WriteString(strings.TrimRight(text[:end], " ") + "\n")
		text = indent + text[end+1:]
	}
	b.WriteString(strings.TrimRight(text, " ") + "\n")
}
