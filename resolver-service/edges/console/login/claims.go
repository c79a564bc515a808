package login

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

const (
	mostName   = 253 // bytes of the name of a person or a group
	mostGroups = 1000
	mostNamed  = 20 // groups on a page and in a line of the log
)

// person is the name that a provider gives somebody. It stands in logs and on pages, so what could
// pass for another name there is refused rather than mended.
func (c *Config) person(claims map[string]any) (string, error) {
	names := []string{"email", "preferred_username", "sub"}
	if v := claims["email_verified"]; v == false || v == "false" {
		names = names[1:]
	}
	if c.NameClaim != "" {
		names = []string{c.NameClaim}
	}
	for _, name := range names {
		if text, _ := claims[name].(string); text != "" {
			if !readable(text) {
				return "", fmt.Errorf("the claim %q is longer than %d bytes, or has characters that can't be seen", name, mostName)
			}
			return text, nil
		}
	}
	return "", errors.New("the ID token has no claim " + strings.Join(names, ", ") + "; ask for its scope, or name another claim")
}

func readable(text string) bool {
	return len(text) <= mostName && strings.TrimSpace(text) == text &&
		!strings.ContainsFunc(text, func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar })
}

// texts are those of a claim: a list, or a single text. What no group could be called is left out.
func texts(claim any) []string {
	list, ok := claim.([]any)
	if !ok {
		list = []any{claim}
	}
	var all []string
	for _, v := range list[:min(len(list), mostGroups)] {
		if text, _ := v.(string); text != "" && readable(text) {
			all = append(all, text)
		}
	}
	return all
}

// rights are those of somebody in some groups; none if nobody of them may read.
func (g Groups) rights(groups []string) []Right {
	may := func(allowed []string) bool {
		return slices.ContainsFunc(allowed, func(a string) bool { return a == "*" || slices.Contains(groups, a) })
	}
	var all []Right
	if may(g.Read) || may(g.Write) || may(g.Link) {
		all = append(all, Read)
	}
	if may(g.Write) {
		all = append(all, Write)
	}
	if may(g.Link) {
		all = append(all, Link)
	}
	return all
}
