package show

import (
	"fmt"
	"io"
	"strings"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/resolver-service/check"
)

// Diagnosis is what all checks have found, as programs read it.
type Diagnosis struct {
	Cluster string      `json:"cluster" yaml:"cluster"` // empty where the service did not answer
	OK      int         `json:"ok" yaml:"ok"`
	Warn    int         `json:"warn" yaml:"warn"`
	Fail    int         `json:"fail" yaml:"fail"`
	Results []Diagnosed `json:"results" yaml:"results"` // the worst first
}

// Diagnosed is what one check has found about one subject.
type Diagnosed struct {
	Check   string  `json:"check" yaml:"check"`
	Level   string  `json:"level" yaml:"level"` // ok, warn or fail
	Subject Subject `json:"subject" yaml:"subject"`
	Found   string  `json:"found" yaml:"found"`
	Fix     string  `json:"fix" yaml:"fix"`
	Link    string  `json:"link" yaml:"link"`
}

// Subject is what a check is about.
type Subject struct {
	Kind string `json:"kind" yaml:"kind"` // such as service, peer, gateway, sidecar, role, cluster or app
	Name string `json:"name" yaml:"name"`
}

// checksPage has a section for each check; it is in site.
const (
	checksPage = "docs/reference/checks.md"
	site       = "https://github.com/isthmus-mesh/isthmus/blob/main/"
)

// DiagnosisOf reads results, which are sorted.
func DiagnosisOf(cluster string, all []check.Result) Diagnosis {
	d := Diagnosis{Cluster: cluster, Results: []Diagnosed{}}
	for _, r := range all {
		switch r.Level {
		case check.OK:
			d.OK++
		case check.Warn:
			d.Warn++
		default:
			d.Fail++
		}
		d.Results = append(d.Results, Diagnosed{r.Check, string(r.Level), Subject{r.Kind, r.Name}, r.Found, r.Fix, site + checksPage + "#" + r.Check})
	}
	return d
}

// width is how many columns people see.
const width = 80

// Diagnose writes what was found, for people: first a line that counts, then the faults.
func Diagnose(w io.Writer, d *Diagnosis, all bool) error {
	var b strings.Builder
	if d.Cluster != "" {
		Say(&b, "cluster %s: ", d.Cluster)
	}
	Say(&b, "%d failed, %s, %d ok\n", d.Fail, Count(d.Warn, "warning"), d.OK)
	for i, r := range d.Results {
		head := fmt.Sprintf("%-4s  %s  %s", strings.ToUpper(r.Level), r.Check, strings.TrimSpace(r.Subject.Kind+" "+r.Subject.Name))
		switch {
		case r.Level != string(check.OK):
			b.WriteByte('\n')
			wrap(&b, head, "      ")
			wrap(&b, "      "+r.Found, "      ")
			if r.Fix != "" {
				wrap(&b, "      fix: "+r.Fix, "      ")
			}
			wrap(&b, "      see: "+checksPage+"#"+r.Check, "      ")
		case all:
			if i == d.Fail+d.Warn {
				b.WriteByte('\n')
			}
			wrap(&b, strings.ToLower(head[:4])+head[4:], "      ")
		}
	}
	if !all && d.OK > 0 && d.Warn+d.Fail > 0 {
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
