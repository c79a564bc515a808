package show

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/isthmus-mesh/isthmus/catalog"
)

// Screen is where people read. Tables and texts written to one fit its columns.
type Screen struct {
	io.Writer
	Columns  int // 0: lines are as long as they are
	Colours  bool
	Terminal bool
}

// ScreenOf is the screen behind a writer: a terminal's, or what COLUMNS says where a program
// such as watch shows it. A file or a pipe gets whole lines.
func ScreenOf(w io.Writer) *Screen {
	s := &Screen{Writer: w, Colours: Colours(w)}
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			s.Columns, s.Terminal = columns, true
		}
	}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 && s.Columns == 0 {
		s.Columns = n
	}
	return s
}

// columnsOf is how many columns a writer has; 0 for any number.
func columnsOf(w io.Writer) int {
	if s, ok := w.(*Screen); ok {
		return s.Columns
	}
	return 0
}

// paint writes a text in a colour where the screen has them.
func paint(w io.Writer, colour, text string) string {
	if s, ok := w.(*Screen); ok && s.Colours {
		return colour + text + "\x1b[0m"
	}
	return text
}

// Gaps between the columns of a table, and to what width at least a column is made narrower.
const (
	gap       = 3
	narrowGap = 2
	leastCell = 10
	leastText = 24 // of one that has texts
	longText  = 40
	longWord  = 22 // that is not parted: an IPv4 address with its port
)

// rows writes a table with a heading. Clients choose some of its texts, such as the ID of an
// instance, so nothing in it can command a terminal. Where the screen is too narrow, the columns
// named optional go, in their order, as far as they must; then long cells go on below.
func rows(w io.Writer, heading []string, rows [][]string, optional ...string) error {
	table := [][]string{heading}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = catalog.Printable(cell)
		}
		table = append(table, cells)
	}
	between, most := gap, columnsOf(w)
	widths := widthsOf(table)
	if most > 0 && total(widths, between) > most {
		between = narrowGap
	}
	for _, name := range optional {
		if most > 0 && total(leastOf(table, widths, most), between) > most {
			table = without(table, name)
			widths = widthsOf(table)
		}
	}
	if most > 0 {
		shrink(widths, leastOf(table, widths, most), most, between)
	}
	var b strings.Builder
	for _, row := range table {
		writeRow(&b, row, widths, between)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func widthsOf(table [][]string) []int {
	widths := make([]int, len(table[0]))
	for _, row := range table {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	return widths
}

func total(widths []int, between int) int {
	n := between * (len(widths) - 1)
	for _, w := range widths {
		n += w
	}
	return n
}

// without is a table without one of its columns.
func without(table [][]string, name string) [][]string {
	for i, heading := range table[0] {
		if heading != name {
			continue
		}
		fewer := make([][]string, len(table))
		for j, row := range table {
			fewer[j] = append(append([]string{}, row[:i]...), row[i+1:]...)
		}
		return fewer
	}
	return table
}

// said is a table without one of its columns, if no row says anything there.
func said(heading []string, table [][]string, name string) ([]string, [][]string) {
	at := slices.Index(heading, name)
	if slices.ContainsFunc(table, func(row []string) bool { return row[at] != "-" }) {
		return heading, table
	}
	whole := without(append([][]string{heading}, table...), name)
	return whole[0], whole[1:]
}

// leastOf are the widths that the columns of a table are made no narrower than: the first has
// names, and words are not parted where they are short.
func leastOf(table [][]string, widths []int, most int) []int {
	all := make([]int, len(widths))
	for i, w := range widths {
		all[i] = leastCell
		if w > longText && i == len(widths)-1 {
			all[i] = leastText
		}
		for _, row := range table {
			for word := range strings.FieldsSeq(row[i]) {
				if n := utf8.RuneCountInString(word); n <= longWord {
					all[i] = max(all[i], n)
				}
			}
		}
		all[i] = min(all[i], w)
	}
	all[0] = min(widths[0], most/2)
	return all
}

// shrink makes the widest columns narrower until the table fits.
func shrink(widths, bound []int, most, between int) {
	for total(widths, between) > most {
		widest := -1
		for i, w := range widths {
			if w > bound[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 { // a very narrow screen
			return
		}
		widths[widest]--
	}
}

// writeRow writes a row, in as many lines as its longest cell needs.
func writeRow(b *strings.Builder, row []string, widths []int, between int) {
	folded, lines := make([][]string, len(row)), 1
	for i, cell := range row {
		folded[i] = fold(cell, widths[i])
		lines = max(lines, len(folded[i]))
	}
	for n := range lines {
		var line strings.Builder
		for i, cell := range folded {
			text := ""
			if n < len(cell) {
				text = cell[n]
			}
			line.WriteString(text + strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(text))+between))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// fold parts a text into lines of at most so many columns, between words where it can. Blanks
// before the text stay before each line.
func fold(text string, columns int) []string {
	words := strings.TrimLeft(text, " ")
	indent := text[:len(text)-len(words)]
	lines := foldAfter(words, columns-len(indent), columns-len(indent))
	for i, line := range lines {
		lines[i] = indent + line
	}
	return lines
}

// foldAfter is fold for a text whose first line has another number of columns than the rest.
func foldAfter(text string, first, other int) (lines []string) {
	rest := []rune(text)
	for room := max(1, first); len(rest) > room; room = max(1, other) {
		end := room
		for end > 0 && rest[end] != ' ' {
			end--
		}
		if end == 0 {
			end = breakIn(rest[:room])
		}
		lines = append(lines, strings.TrimRight(string(rest[:end]), " "))
		rest = []rune(strings.TrimLeft(string(rest[end:]), " "))
	}
	return append(lines, string(rest))
}

// breakIn is where a word that is too long is parted: after its last mark, or at its end.
func breakIn(word []rune) int {
	for i := len(word) - 1; i > len(word)/2; i-- {
		if strings.ContainsRune("/,-=", word[i]) {
			return i + 1
		}
	}
	return len(word)
}

// paragraph writes a text that begins with head. Its further lines are indented.
func paragraph(w io.Writer, head, indent, text string) {
	name := strings.TrimLeft(head, "\n")
	head = head[:len(head)-len(name)] + held(name)
	for i, line := range strings.Split(printableLines(text), "\n") {
		if i > 0 && head == "" {
			line = "    " + line
		}
		folded := []string{line}
		if columns := columnsOf(w); columns > 0 {
			folded = foldAfter(line, columns-len(strings.TrimLeft(head, "\n")), columns-len(indent))
		}
		for _, one := range folded {
			Say(w, "%s\n", painted(strings.TrimRight(head+one, " ")))
			head = indent
		}
	}
}

// pairs writes names and values in two columns; a pair without a value is left out.
func pairs(w io.Writer, indent string, all [][2]string) error {
	widest := 0
	for _, p := range all {
		if p[1] != "" {
			widest = max(widest, len(p[0]))
		}
	}
	for _, p := range all {
		if p[1] != "" {
			paragraph(w, fmt.Sprintf("%s%-*s", indent, widest+gap, p[0]), strings.Repeat(" ", len(indent)+widest+gap), p[1])
		}
	}
	return nil
}

// painted is a text that is safe: it holds no more than colours of our own.
type painted string

// Say writes a text for people. Every line of this package goes through it or through rows: nothing
// in its arguments can command a terminal, or begin a line of its own.
func Say(w io.Writer, format string, args ...any) (int, error) {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = arg
		switch arg.(type) {
		case painted, time.Duration:
			continue
		case error, fmt.Stringer:
			safe[i] = held(fmt.Sprint(arg))
		default:
			if reflect.ValueOf(arg).Kind() == reflect.String {
				safe[i] = held(fmt.Sprint(arg))
			}
		}
	}
	return fmt.Fprintf(w, format, safe...)
}

// held is a text whose further lines are indented, so that none looks like one of ours.
func held(s string) string {
	return strings.ReplaceAll(printableLines(s), "\n", "\n    ")
}

// Lines is an error's text, safe for a terminal. It keeps its lines.
func Lines(err error) string { return printableLines(err.Error()) }

// printableLines is [catalog.Printable] for a text of several lines.
func printableLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = catalog.Printable(line)
	}
	return strings.Join(lines, "\n")
}

// inLine is a text in which a name from outside, such as that of a file, begins no line of its own.
func inLine(text, name string) string {
	if catalog.Printable(name) == name {
		return text
	}
	quoted := strconv.Quote(name)
	return strings.ReplaceAll(text, name, quoted[1:len(quoted)-1])
}
