// Package page takes the commands out of a page of the docs, so that a test can type them as they
// stand there.
package page

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Command is one that a page has its reader type.
type Command struct {
	Text    string   // as it stands there
	Section string   // the heading above
	Line    int      // in the page, from 1
	Prints  []string // the lines below it, which the page says it prints
}

// Console returns the commands of the page's console blocks, in their order.
func Console(text string) (all []Command) {
	section, inside := "", false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case !inside && strings.HasPrefix(line, "#"):
			section = strings.TrimLeft(line, "# ")
		case !inside:
			inside = line == "```console"
		case line == "```":
			inside = false
		case strings.HasPrefix(line, "$ "):
			all = append(all, Command{Text: line[2:], Section: section, Line: i + 1})
		case len(all) > 0:
			last := &all[len(all)-1]
			if strings.HasSuffix(last.Text, "\\") {
				last.Text += "\n" + line
			} else {
				last.Prints = append(last.Prints, line)
			}
		}
	}
	return all
}

// Ground is where commands are typed: a directory, and what they find there.
type Ground struct {
	Dir string
	Env []string
	// Lacks says why a command can't be typed here; empty where it can. Nil: all can.
	Lacks func(Command) string
	// Do starts a command where it belongs, such as in the network of a cluster. Nil: here.
	Do func(start func() error) error
}

// Type runs a command, unless the ground lacks what it needs. The error has what it printed.
func (g *Ground) Type(ctx context.Context, c Command) (out, lacks string, err error) {
	if g.Lacks != nil {
		if why := g.Lacks(c); why != "" {
			return "", why, nil
		}
	}
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", c.Text)
	var text strings.Builder
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = g.Dir, g.Env, &text, &text
	do := g.Do
	if do == nil {
		do = func(start func() error) error { return start() }
	}
	if err = do(cmd.Start); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("line %d, %s: %w\n%s", c.Line, c.Text, err, &text)
	}
	return text.String(), "", err
}
