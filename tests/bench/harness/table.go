package harness

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Quantile is the smallest value that a share q of the values, from 0 to 1, does not exceed. It is
// the zero value where there are none.
func Quantile[T int | int64 | float64 | time.Duration](values []T, q float64) (at T) {
	if len(values) == 0 {
		return at
	}
	values = slices.Sorted(slices.Values(values))
	return values[min(int(q*float64(len(values))), len(values)-1)]
}

// Subject is one of those that are compared: a row of the table. Its figures have a value for each
// round.
type Subject struct {
	Name   string
	Beside *Subject // ratios are to it; nil: it has none
	Held   bool     // the aims apply to it

	figures map[string][]float64
}

// Add notes a value of a figure.
func (s *Subject) Add(figure string, value float64) {
	if s.figures == nil {
		s.figures = map[string][]float64{}
	}
	s.figures[figure] = append(s.figures[figure], value)
}

// Took notes times, in milliseconds.
func (s *Subject) Took(figure string, times ...time.Duration) {
	for _, d := range times {
		s.Add(figure, float64(d)/1e6)
	}
}

// MiB notes a number of bytes, in MiB.
func (s *Subject) MiB(figure string, bytes uint64) { s.Add(figure, float64(bytes)/(1<<20)) }

// Values are those of a figure.
func (s *Subject) Values(figure string) []float64 { return s.figures[figure] }

// Forget forgets what warmed up.
func (s *Subject) Forget() { s.figures = nil }

// Times is how many times its reference's a quantile of a figure is: for the median round by round,
// if both have as many.
func (s *Subject) Times(figure string, q float64) float64 {
	values, base := s.figures[figure], s.Beside.figures[figure]
	if q != .5 || len(values) != len(base) {
		return Quantile(values, q) / Quantile(base, q)
	}
	times := make([]float64, len(values))
	for i := range values {
		times[i] = values[i] / base[i]
	}
	return Quantile(times, q)
}

// Column is a quantile of a figure.
type Column struct {
	Head, Figure, Format string
	Quantile             float64
	Times                float64 // the aim: at most so many times the reference's; 0 for none
	Most                 float64 // the aim: at most so much; 0 for none
}

// Print prints a table of the subjects' figures, and how the aims are met. In brackets each has how
// many times its reference's it is.
func Print(title string, subjects []*Subject, columns []Column) {
	rows, verdicts := cells(subjects, columns)
	fmt.Print(markdown(title, rows), verdicts)
}

// PrintColumns is Print with a column for each subject.
func PrintColumns(title string, subjects []*Subject, columns []Column) {
	rows, verdicts := cells(subjects, columns)
	turned := make([][]string, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			turned[i] = append(turned[i], cell)
		}
	}
	fmt.Print(markdown(title, turned), verdicts)
}

func cells(subjects []*Subject, columns []Column) (rows [][]string, verdicts string) {
	head := []string{""}
	for _, c := range columns {
		head = append(head, c.Head)
	}
	rows = append(rows, head)
	for _, s := range subjects {
		row := []string{s.Name}
		for _, c := range columns {
			value, cell := Quantile(s.figures[c.Figure], c.Quantile), "—"
			if len(s.figures[c.Figure]) > 0 {
				cell = fmt.Sprintf(c.Format, value)
			}
			verdict := func(ok bool, aim string) {
				verdicts += fmt.Sprintf("%s, %s: at most %s: %s\n", s.Name, c.Head, aim, map[bool]string{true: "met", false: "MISSED"}[ok])
			}
			if s.Beside != nil && Quantile(s.Beside.figures[c.Figure], c.Quantile) != 0 {
				times := s.Times(c.Figure, c.Quantile)
				cell += fmt.Sprintf(" (%.2f)", times)
				if s.Held && c.Times > 0 {
					verdict(times <= c.Times, fmt.Sprintf("%.2f ×", c.Times))
				}
			}
			if s.Held && c.Most > 0 && cell != "—" {
				verdict(value <= c.Most, fmt.Sprint(c.Most))
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return rows, verdicts
}

// markdown is a table of rows, the heading first. It reads well in a terminal too: the first column
// stands to the left, the others to the right.
func markdown(title string, rows [][]string) string {
	width, rule := make([]int, len(rows[0])), make([]string, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for i := range rule {
		rule[i] = strings.Repeat("-", width[i]-min(i, 1)) + ":"[:min(i, 1)]
	}
	text := "\n" + title + "\n\n"
	for _, row := range slices.Insert(slices.Clone(rows), 1, rule) {
		text += fmt.Sprintf("| %-*s", width[0], row[0])
		for i, cell := range row[1:] {
			text += fmt.Sprintf(" | %*s", width[i+1], cell)
		}
		text += " |\n"
	}
	return text + "\n"
}
