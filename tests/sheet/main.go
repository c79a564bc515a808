// Command sheet measures the size and shape of this repository's Go code, and how plain its docs
// are, beside projects that read well. Their figures were measured on their code without tests.
package main

import (
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/isthmus-mesh/isthmus/tests/prose"
)

// names are the columns of the sheet.
var names = []string{"", "CoreDNS", "grpc-go resolver, balancer", "tcpproxy", "go-spiffe", "Prometheus discovery", "statedb", "ours"}

// models are the rows of the sheet without our column.
var models = [9][]string{
	{"function lines, 90th / 99th percentile", "43 / 106", "40 / 89", "28 / 70", "20 / 45", "47 / 158", "32 / 94"},
	{"file lines, median / files over 500", "76 / 8", "115 / 7", "137 / 1", "72 / 3", "159 / 13", "125 / 7"},
	{"largest interface, methods", "17", "8", "1", "5", "7", "16"},
	{"init() functions", "67", "16", "0", "0", "36", "1"},
	{"packages with a package comment", "61 %", "100 %", "33 %", "30 %", "6 %", "17 %"},
	{"test lines per code line", "1.6", "2.0", "0.8", "1.0", "1.2", "0.9"},
	{"methods on the largest type", "34", "35", "16", "35", "14", "–"},
	{"words a sentence in docs", "13.1", "15.2", "–", "12.3", "13.1", "–"},
	{"noun clauses per 1,000 words", "0.1", "0.2", "–", "0", "0.1", "–"},
}

func main() {
	depth := flag.Int("depth", 1, "parts of the path by which folders are named, 1 or more")
	flag.Parse()
	if err := run(os.Stdout, ".", max(1, *depth)); err != nil {
		fmt.Fprintln(os.Stderr, "sheet:", err)
		os.Exit(1)
	}
}

// run prints the sheet of the repository in root.
func run(out io.Writer, root string, depth int) error {
	t, err := measure(root, depth)
	if err != nil {
		return err
	}
	docs, err := plainness(root)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(names, "\t"))
	for i, figure := range t.figures(docs) {
		fmt.Fprintf(w, "%s\t%s\n", strings.Join(models[i], "\t"), figure)
	}
	w.Flush()

	name, n := largest(t.methods)
	fmt.Fprintf(out, "\nlargest type: %s, %d methods\n", name, n)
	name, n = largest(t.contracts())
	fmt.Fprintf(out, "largest interface: %s, %d methods\n\n", name, n)

	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "lines of code\twithout comments, blanks\ttests\tgenerated\t  folder")
	for _, folder := range slices.Sorted(maps.Keys(t.folders)) {
		l := t.folders[folder]
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t  %s\n", l.all, l.code, l.tests, l.generated, folder)
	}
	fmt.Fprintf(w, "%d\t%d\t%d\t%d\t  all\n", t.all.all, t.all.code, t.all.tests, t.all.generated)
	return w.Flush()
}

// figures are our column, in the order of the rows.
func (t *tree) figures(docs prose.Plainness) [len(models)]string {
	long, _ := slices.BinarySearch(t.files, 501) // index of the first long file
	commented := 0
	for _, has := range t.commented {
		if has {
			commented++
		}
	}
	_, methods := largest(t.methods)
	_, contract := largest(t.contracts())
	return [len(models)]string{
		fmt.Sprintf("%d / %d", percentile(t.functions, 90), percentile(t.functions, 99)),
		fmt.Sprintf("%d / %d", percentile(t.files, 50), len(t.files)-long),
		fmt.Sprint(contract),
		fmt.Sprint(t.inits),
		fmt.Sprintf("%d %%", 100*commented/len(t.commented)),
		fmt.Sprintf("%.1f", float64(t.all.tests)/float64(t.all.all)),
		fmt.Sprint(methods),
		fmt.Sprintf("%.1f", docs.Mean),
		fmt.Sprintf("%.1f", docs.Clauses),
	}
}

func percentile(ordered []int, p int) int { return ordered[len(ordered)*p/100] }

// largest is the first by name of those with the largest number.
func largest(sizes map[string]int) (name string, n int) {
	for _, each := range slices.Sorted(maps.Keys(sizes)) {
		if sizes[each] > n {
			name, n = each, sizes[each]
		}
	}
	return name, n
}

// plainness measures README.md and the pages below docs as one text.
func plainness(root string) (prose.Plainness, error) {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		return prose.Plainness{}, err
	}
	err = filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		page, err := os.ReadFile(path)
		text = append(append(text, "\n\n"...), page...)
		return err
	})
	return prose.Measure(string(text)), err
}
