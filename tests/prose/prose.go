// Package prose measures how plainly a page of Markdown is written.
package prose

import (
	"regexp"
	"slices"
	"strings"
)

// Plainness is the measure of one text. Headings, tables and blocks of code do not count.
type Plainness struct {
	Words     int
	Sentences int      // of three words or more
	Mean      float64  // words a sentence
	P90       int      // words of the sentence at the 90th percentile
	Longest   string   // sentence
	Clauses   float64  // noun clauses per 1,000 words
	Nouns     []string // these clauses, such as "who asks" or "what is"
}

var (
	code  = regexp.MustCompile("(?s)```.*?```")
	item  = regexp.MustCompile(`^(?:[-*] |\d+\. )`)
	link  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	end   = regexp.MustCompile(`([.!?:])\s+([A-Z*"(-])`)
	stop  = regexp.MustCompile(`\s\.\s`)
	word  = regexp.MustCompile(`[A-Za-z][\w'-]*`)
	nouns = regexp.MustCompile(`\b(?:who|whoever) (?:has|is|asks|dials|makes|takes|knows|does|can|reads|writes|calls|tells|changes|relies)\b` +
		`|\b(?:[Ww]hat|whatever) (?:is|was|it|they|comes|goes|stands|has|can|does)\b`)
)

// Measure measures a page. It is the zero Plainness where the page has no sentence.
func Measure(text string) Plainness {
	lines := strings.Split(code.ReplaceAllString(text, ""), "\n")
	for i, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '|' || line[0] == '#':
			lines[i] = "." // ends a sentence
		case item.MatchString(line):
			lines[i] = ". " + item.ReplaceAllString(line, "")
		}
	}
	flat := strings.ReplaceAll(link.ReplaceAllString(strings.Join(lines, " "), "$1"), "`", "")
	p := Plainness{Nouns: nouns.FindAllString(flat, -1)}
	var lengths []int
	cut := stop.ReplaceAllString(end.ReplaceAllString(flat, "$1\x00$2"), "\x00")
	for sentence := range strings.SplitSeq(cut, "\x00") {
		if n := len(word.FindAllString(sentence, -1)); n >= 3 {
			if len(lengths) == 0 || n > slices.Max(lengths) {
				p.Longest = strings.TrimSpace(sentence)
			}
			lengths = append(lengths, n)
			p.Words += n
		}
	}
	if p.Sentences = len(lengths); p.Sentences == 0 {
		return Plainness{}
	}
	slices.Sort(lengths)
	p.Mean = float64(p.Words) / float64(p.Sentences)
	p.P90 = lengths[p.Sentences*9/10]
	p.Clauses = 1000 * float64(len(p.Nouns)) / float64(p.Words)
	return p
}
