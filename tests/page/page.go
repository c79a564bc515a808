// Package page takes the commands out of a page of the docs, so that a test can type them as they
// stand there.
package page

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// All are the README and every page in docs/ and the folders below it, by path, which begins with
// root.
func All(root string) (map[string]string, error) {
	all := map[string]string{}
	add := func(path string) error {
		text, err := os.ReadFile(path)
		all[path] = string(text)
		return err
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} {
		if err := add(filepath.Join(root, name)); err != nil {
			return nil, err
		}
	}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			return add(path)
		}
		return err
	})
	return all, err
}

// Snippet is a fenced block of a page.
type Snippet struct{ Language, Text string }

var fence = regexp.MustCompile("(?ms)^( *)```([a-z]+)\n(.*?)^ *```$")

// Snippets are the fenced blocks of a page, without what they are indented by.
func Snippets(page string) (all []Snippet) {
	for _, match := range fence.FindAllStringSubmatch(page, -1) {
		var text strings.Builder
		for line := range strings.Lines(match[3]) {
			text.WriteString(strings.TrimPrefix(line, match[1]))
		}
		all = append(all, Snippet{match[2], text.String()})
	}
	return all
}

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
	// In is what a command reads, and Out gets what it prints while it does. Nil: nothing, and nobody.
	In  io.Reader
	Out io.Writer
}

// Type runs a command, unless the ground lacks what it needs. The error has what it printed.
func (g *Ground) Type(ctx context.Context, c Command) (printed, lacks string, err error) {
	if g.Lacks != nil {
		if why := g.Lacks(c); why != "" {
			return "", why, nil
		}
	}
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", c.Text)
	var text strings.Builder
	var out io.Writer = &text
	if g.Out != nil {
		out = io.MultiWriter(out, g.Out)
	}
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = g.Dir, g.Env, g.In, out, out
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
