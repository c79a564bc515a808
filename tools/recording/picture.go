package main

import (
	_ "embed"
	"fmt"
	"regexp"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"
)

// The size of the terminal, in characters and in pixels.
const (
	columns    = 110
	rows       = 28
	lineHeight = 18
	margin     = 16
	width      = 830 // for the columns, in any usual font
	bar        = 30  // above the lines
)

// How long the picture rests before a line, and at its end.
const (
	beforeLine    = 90 * time.Millisecond
	beforeCommand = 900 * time.Millisecond
	beforeStep    = 2200 * time.Millisecond
	atTheEnd      = 6 * time.Second
)

// row is one line of the terminal.
type row struct {
	Text  string
	Class string        // how it is drawn: "step", "command", "faint" or plain
	at    time.Duration // when it appears
	Y     int           // where, from the top of the picture
}

var numbered = regexp.MustCompile(`^\d+\. `)

// script is what the terminal shows, and when. It breaks lines that are too long.
func script(printed string) []row {
	var all []row
	var now time.Duration
	show := func(text, class string) {
		all = append(all, row{text, class, now, bar + (len(all)+1)*lineHeight})
	}
	for text := range strings.Lines(strings.TrimRight(printed, "\n")) {
		text = strings.TrimRight(text, " \n")
		class, rest := "plain", beforeLine
		switch trimmed := strings.TrimSpace(text); {
		case numbered.MatchString(text):
			class, rest = "step", beforeStep
		case strings.HasPrefix(trimmed, "$ "):
			class, rest = "command", beforeCommand
		case strings.HasPrefix(trimmed, "… "):
			class = "faint"
		}
		now += rest
		indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
		for utf8.RuneCountInString(text) > columns {
			head := string([]rune(text)[:columns])
			if cut := strings.LastIndex(head, " "); cut > len(indent) {
				head = head[:cut]
			}
			show(head, class)
			text = indent + "  " + strings.TrimSpace(text[len(head):])
		}
		show(text, class)
	}
	return all
}

// frame is a moment of an animation.
type frame struct {
	Percent float64 // of its whole time
	Pixels  int     // by which it has moved
}

//go:embed picture.svg.tmpl
var drawing string

var sheet = template.Must(template.New("picture").Funcs(template.FuncMap{
	"text": func(s string) string {
		s = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
		return strings.ReplaceAll(s, " ", "\u00a0") // several spaces would be drawn as one
	},
	"percent": func(f float64) string { return fmt.Sprintf("%.2f", f) },
}).Parse(drawing))

// picture is the SVG of a terminal in which lines appear one by one. Where nothing moves, as
// in print, it shows the first screen.
func picture(printed string) (string, error) {
	lines := script(printed)
	whole := lines[len(lines)-1].at + atTheEnd
	var scroll, curtain []frame // the lines go up; what hides those to come goes down
	for i, l := range lines {
		percent := 100 * l.at.Seconds() / whole.Seconds()
		if i < rows {
			curtain = append(curtain, frame{percent, (i + 1) * lineHeight})
		} else {
			scroll = append(scroll, frame{percent, -(i + 1 - rows) * lineHeight})
		}
	}
	var drawn strings.Builder
	err := sheet.Execute(&drawn, map[string]any{
		"Lines": lines, "Scroll": scroll, "Curtain": curtain, "Seconds": whole.Seconds(),
		"Width": width, "Height": bar + rows*lineHeight + margin,
		"Margin": margin, "Bar": bar + 5, "Screen": rows * lineHeight,
	})
	return drawn.String(), err
}
