package demo

import (
	"fmt"
	"io"
	"strings"
)

// printer writes the story for a person to read.
type printer struct {
	out   io.Writer
	color bool
	steps int
}

const (
	bold  = "\x1b[1m"
	faint = "\x1b[2m"
	plain = "\x1b[0m"
)

func (p *printer) style(style, s string) string {
	if !p.color {
		return s
	}
	return style + s + plain
}

// title begins a part.
func (p *printer) title(s string) { fmt.Fprintf(p.out, "\n%s\n", p.style(bold, s)) }

// step begins a numbered step.
func (p *printer) step(s string) {
	p.steps++
	p.title(fmt.Sprintf("%d. %s", p.steps, s))
}

func (p *printer) say(format string, args ...any) { fmt.Fprintf(p.out, format+"\n", args...) }

func (p *printer) progress(format string, args ...any) {
	p.say("%s", p.style(faint, "  … "+fmt.Sprintf(format, args...)))
}

// command shows what a user types to do the same.
func (p *printer) command(s string) { p.say("%s", p.style(bold, "  $ "+s)) }

// output shows what a command printed.
func (p *printer) output(s string) {
	for line := range strings.Lines(strings.TrimRight(s, "\n") + "\n") {
		fmt.Fprint(p.out, "    ", line)
	}
}
