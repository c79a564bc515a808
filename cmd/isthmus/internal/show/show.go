// Package show prints answers: as tables for people, as JSON and YAML for programs.
package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Format is how an answer is printed.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Formats lists every format.
func Formats() []string { return []string{string(Table), string(JSON), string(YAML)} }

// Print writes a value as JSON or YAML.
func Print(w io.Writer, f Format, value any) error {
	if f == YAML {
		e := yaml.NewEncoder(w)
		e.SetIndent(2)
		if err := e.Encode(value); err != nil {
			return err
		}
		return e.Close()
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(value)
}

// rows writes a table with a heading. Clients choose some of its texts, such as the ID of an
// instance, so nothing in it can command a terminal.
func rows(w io.Writer, heading []string, rows [][]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, strings.Join(heading, "\t"))
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = catalog.Printable(cell)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// pairs writes names and values in two columns; a pair without a value is left out.
func pairs(w io.Writer, indent string, all [][2]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, p := range all {
		if p[1] != "" {
			fmt.Fprintf(t, "%s%s\t%s\n", indent, p[0], printableLines(p[1]))
		}
	}
	return t.Flush()
}

// printableLines is [catalog.Printable] for a text of several lines.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = catalog.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// Count is a number of things: "1 object", "2 objects".
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
