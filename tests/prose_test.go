package tests

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// What a page may have. Pages of other projects that read well have 12 to 15 words a
// sentence.
const (
	meanWords   = 15.0 // of its sentences
	longWords   = 28   // of the sentence at the 90th percentile
	clausesIn   = 1000 // words, of which fewer than one begins a clause that stands for a noun
	widestLine  = 100  // columns, outside of tables and code
	fewestWords = 3    // of a sentence that counts; shorter ones are labels
)

// clause is a clause that stands where the noun should: "who has the address" for the owner.
var clause = regexp.MustCompile(`(?i)\b(who|whoever) (has|is|asks|dials|makes|takes|knows|does|can|reads|writes|calls|tells|changes|relies)\b` +
	`|\b(what|whatever) (is|was|it|they|comes|goes|stands|has|can|does)\b`)

var (
	inline  = regexp.MustCompile("`[^`]*`")
	linked  = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	marking = regexp.MustCompile(`^ *(?:[-*] |\d+\. )`)
	// stop ends a sentence. The next one may begin with a small letter, as daprd does.
	stop = regexp.MustCompile(`[.!?][)*"”]*\s+`)
	word = regexp.MustCompile(`[\pL\pN][\pL\pN'’._/-]*|\x00`)
	code = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
)

// passages are the paragraphs and items of lists of a page, without code and tables.
func passages(page string) []string {
	var all []string
	var now strings.Builder
	end := func() {
		if now.Len() > 0 {
			all = append(all, now.String())
		}
		now.Reset()
	}
	for line := range strings.Lines(code.ReplaceAllString(page, "")) {
		text := strings.TrimRight(line, "\n")
		switch {
		case !prose(text):
			end()
			continue
		case marking.MatchString(text):
			end()
			text = marking.ReplaceAllString(text, "")
		}
		now.WriteString(strings.TrimSpace(text) + " ")
	}
	end()
	return all
}

// prose tells whether a line has sentences: it is no row of a table, no heading, no picture
// and no code.
func prose(line string) bool {
	return strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "    ") &&
		!strings.HasPrefix(strings.TrimSpace(line), "|") && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "![")
}

// sentences are those of a passage, each code in it being one word.
func sentences(passage string) []string {
	return stop.Split(inline.ReplaceAllString(linked.ReplaceAllString(passage, "$1"), "\x00"), -1)
}

// measures are those of a page.
type measures struct {
	lengths []int // of its sentences in words, in order of length
	longest string
	clauses []string
	words   int
}

func measure(page string) (m measures) {
	for _, passage := range passages(page) {
		for _, sentence := range sentences(passage) {
			n := len(word.FindAllString(sentence, -1))
			if n < fewestWords {
				continue
			}
			if len(m.lengths) == 0 || n > slices.Max(m.lengths) {
				m.longest = sentence
			}
			m.lengths = append(m.lengths, n)
			m.words += n
			m.clauses = append(m.clauses, clause.FindAllString(sentence, -1)...)
		}
	}
	slices.Sort(m.lengths)
	return m
}

// complaints are what is wrong with the prose of a page.
func complaints(page string) []string {
	var all []string
	for line := range strings.Lines(code.ReplaceAllString(page, "")) {
		line = strings.TrimRight(line, "\n")
		if n := utf8.RuneCountInString(line); prose(line) && n > widestLine {
			all = append(all, fmt.Sprintf("a line of %d columns: %.60s…", n, line))
		}
	}
	m := measure(page)
	if len(m.lengths) == 0 {
		return all
	}
	if mean := float64(m.words) / float64(len(m.lengths)); mean > meanWords {
		all = append(all, fmt.Sprintf("%.1f words a sentence; at most %.0f", mean, meanWords))
	}
	if long := m.lengths[len(m.lengths)*9/10]; long > longWords {
		all = append(all, fmt.Sprintf("one sentence in ten has %d words or more; at most %d. The longest: %s", long, longWords, m.longest))
	}
	if n := len(m.clauses); n*clausesIn > m.words && n > 1 {
		all = append(all, fmt.Sprintf("%d clauses stand for nouns in %d words; name the thing: %q", n, m.words, m.clauses))
	}
	return all
}

// TestPlainWords holds every page to short sentences, nouns and short lines.
func TestPlainWords(t *testing.T) {
	for path, page := range pages(t) {
		for _, complaint := range complaints(page) {
			t.Errorf("%s: %s", path, complaint)
		}
	}
}

func TestComplaints(t *testing.T) {
	long := "This sentence" + strings.Repeat(" goes on", 14)
	for _, c := range []struct{ name, page, want string }{
		{"short sentences", "The service drops the instance. It tells the sidecars.\n", ""},
		{"a long one", strings.ReplaceAll(long, " on go", " on\ngo") + ".\n", "30.0 words a sentence"},
		{"code is one word", "Run `" + strings.ReplaceAll(long, " on go", " on\ngo") + "` now.\n", ""},
		{"fenced code and tables have no sentences", "```sh\n" + long + "\n```\n| " + long + " |\n", ""},
		{"items of a list are apart", "- " + long[:60] + "\n- " + long[:60] + "\n", ""},
		{"a name with a small letter begins a sentence", "The sidecar asks again and again. `daprd` waits for it.\n", ""},
		{"nouns of clauses", "The app of who has the address counts. It keeps what it knows.\n", "2 clauses"},
		{"a wide line", strings.Repeat("Short words. ", 9) + "\n", "a line of 117 columns"},
		{"a wide line of code", "    " + strings.Repeat("Short words. ", 9) + "\n", ""},
	} {
		got := strings.Join(complaints(c.page), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q; want %q", c.name, got, c.want)
		}
	}
}

// anchors are the names that links to a page may end with.
func anchors(page string) []string {
	var all []string
	for line := range strings.Lines(code.ReplaceAllString(page, "")) {
		if text, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			text = linked.ReplaceAllString(strings.TrimSpace(text), "$1")
			name := strings.Map(func(r rune) rune {
				switch {
				case r == ' ':
					return '-'
				case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
					return unicode.ToLower(r)
				}
				return -1
			}, text)
			all = append(all, name)
		}
	}
	for _, match := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(page, -1) {
		all = append(all, match[1])
	}
	return all
}
