package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write what docs/reference/cli.md has of the help")

const reference = "../../docs/reference/cli.md"

// fromHelp matches a command's help in the page, below its heading. The text around it is written by hand.
var fromHelp = regexp.MustCompile(`(?s)### (isthmus [a-z -]+)\n\n<!--help-->\n.*?<!--/help-->\n`)

// TestTheReferenceIsTheHelp holds docs/reference/cli.md to the help of every command.
func TestTheReferenceIsTheHelp(t *testing.T) {
	helps := map[string]string{}
	each(newRoot(), func(cmd *cobra.Command) {
		if cmd.Parent().Name() != "completion" {
			helps[cmd.CommandPath()] = inMarkdown(cmd)
		}
	})
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	made := fromHelp.ReplaceAllStringFunc(string(text), func(old string) string {
		path := fromHelp.FindStringSubmatch(old)[1]
		help, ok := helps[path]
		if !ok {
			t.Errorf("%s has the help of %s, which is no command", reference, path)
			return old
		}
		delete(helps, path)
		return fmt.Sprintf("### %s\n\n<!--help-->\n%s<!--/help-->\n", path, help)
	})
	for _, path := range slices.Sorted(maps.Keys(helps)) {
		t.Errorf("%s lacks the help of a command; add:\n### %s\n\n<!--help-->\n<!--/help-->", reference, path)
	}
	switch {
	case *update:
		if err := os.WriteFile(reference, []byte(made), 0o644); err != nil {
			t.Fatal(err)
		}
	case made != string(text):
		t.Errorf("%s is not what the help says: run make generate", reference)
	}
}

// inMarkdown is the help of a command as the page has it.
func inMarkdown(cmd *cobra.Command) string {
	var b strings.Builder
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		fmt.Fprintf(&b, "\n%s\n", wrapped(marked(strings.ReplaceAll(paragraph, "\n", " "))))
	}
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	if cmd.Name() == "options" {
		cmd = &cobra.Command{}
		(&connection{}).flags(cmd, toRead)
		cmd.Flags().VisitAll(shown.AddFlag)
	} else {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			_, common := f.Annotations[reachesService]
			common = common || f.Name == "all-namespaces" || f.Name == "namespace"
			if _, format := f.Value.(*format); !common && !format && f.Name != "help" && !reaches(cmd, f) {
				shown.AddFlag(f)
			}
		})
	}
	flags := shown.FlagUsagesWrapped(100)
	if cmd.HasExample() && flags != "" {
		flags = "\n" + flags
	}
	fmt.Fprintf(&b, "\n```text\n%s%s```\n\n", strings.TrimSuffix(cmd.Example+"\n", "\n\n"), flags)
	return b.String()
}

// reaches tells of a flag of "context set" whether "isthmus options" has it, too.
func reaches(cmd *cobra.Command, f *pflag.Flag) bool {
	all := &cobra.Command{}
	(&connection{}).flags(all, toRead)
	return cmd.Name() == "set" && all.Flags().Lookup(f.Name) != nil
}

var (
	quotedCommand = regexp.MustCompile(`"([^"]+)"`)
	flagInText    = regexp.MustCompile(`(^|[ (])(--?[a-z][a-z-]*)`)
	placeholder   = regexp.MustCompile(`<([a-z]+)>`)
)

// marked is a text of the help with its commands and flags as code.
func marked(text string) string {
	var b strings.Builder
	for i, part := range strings.Split(quotedCommand.ReplaceAllString(text, "`$1`"), "`") {
		switch {
		case i%2 == 1:
			fmt.Fprintf(&b, "`%s`", part)
		default:
			b.WriteString(placeholder.ReplaceAllString(flagInText.ReplaceAllString(part, "$1`$2`"), `\<$1>`))
		}
	}
	return b.String()
}

// wrapped breaks a paragraph into lines of at most 100 columns.
func wrapped(text string) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		switch n := len([]rune(word)); {
		case column == 0:
			column = n
		case column+1+n > 100:
			b.WriteString("\n")
			column = n
		default:
			b.WriteString(" ")
			column += 1 + n
		}
		b.WriteString(word)
	}
	return b.String()
}
