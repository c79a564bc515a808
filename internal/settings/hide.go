package settings

import (
	"regexp"
	"strings"
)

// Names of what is secret, at the end of a longer name: aws_secret_access_key, X-Vault-Token.
const secretName = `[a-z0-9_.-]*(?:pass(?:word|wd|phrase|code)|pwd|secret|token|credentials?|` +
	`(?:api|access|account|private|shared|signing|encryption|master|session)[-_]?key|key[-_]data|access[-_]?signature)`

// secrets are what gives access wherever it stands in a text, and what is shown in its place.
var secrets = []struct {
	found *regexp.Regexp
	shown string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:[A-Za-z0-9+/=\s:,.()\\-]*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|[A-Za-z0-9+/=\s:,\\-]*)`), "(hidden: a private key)"},
	{regexp.MustCompile(`\bAGE-SECRET-KEY-[A-Z0-9]+`), "(hidden: a private key)"},
	{regexp.MustCompile(`\b(isthmus-link-[0-9]+\.)[A-Za-z0-9_-]+`), "(hidden: an invitation)"},
	{regexp.MustCompile(`([?&][A-Za-z0-9_.-]+=)[^&#\s"'\\]+`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)\b((?:set-)?cookie["']?[ \t]*[=:][ \t]*\\?["']?)[^\n"'\\]+`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)(authorization["']?[ \t]*[=:][ \t]*\\?["']?(?:[a-z]+ )?)[^\s"'\\]+`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{8,}`), "${1} (hidden)"},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), "(hidden: a token)"},
	{regexp.MustCompile(`\b(?:gh[a-z]_|github_pat_|glpat-|xox[a-z]-|hvs\.|npm_|ya29\.|AIza)[A-Za-z0-9_.-]{16,}`), "(hidden: a token)"},
	// A value in quotes may have blanks; so may a line of YAML, and a block of it.
	{regexp.MustCompile(`(?i)\b(` + secretName + `["']?[ \t]*(?:=>|[=:])[ \t]*)"(?:\\.|[^"\\\n])+"`), `${1}"(hidden)"`},
	{regexp.MustCompile(`(?i)\b(` + secretName + `["']?[ \t]*(?:=>|[=:])[ \t]*)'[^'\n]+'`), `${1}'(hidden)'`},
	{regexp.MustCompile(`(?i)\b(` + secretName + `\\?["'][ \t]*(?:=>|[=:])[ \t]*\\")(?:[^"\\\n]|\\\\.)+`), `${1}(hidden)`},
	{regexp.MustCompile(`(?i)\b(` + secretName + `["']?[ \t]*:[ \t]*[|>][-+]?[ \t]*\n[ \t]+)[^\n]+`), "${1}(hidden)"},
	{regexp.MustCompile(`(?im)^([ \t-]*[a-z0-9_.-]*pass(?:word|wd|phrase|code):[ \t]+)[^\s"'({\[|>&*#][^\n]*`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)\b(` + secretName + `\\?["']?[ \t]*(?:=>|[=:])[ \t]*\\?["']?)[^\s"',;{}()\[\]\\|>][^\s"',;{}()\[\]\\]*(?:\(hidden\))?`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)(--` + secretName + `[ \t]+)[^\s"'-][^\s"']*`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)(<` + secretName + `>)[^<]+`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)\b((?:requirepass|masterauth|auth|identified by)[ \t]+["'])[^"'\n]+`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)\b((?:requirepass|masterauth)[ \t]+)[^\s"'(][^\s"']*`), "${1}(hidden)"},
}

// A user and a password before a host, with a scheme or without. Both may have any character in it,
// since people forget to escape them.
var (
	urlUser = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)([^\s"'<>]*)@`)
	dsnUser = regexp.MustCompile(`(^|[\s"'=,])[^\s"'/:@=,]+:([^\s"'@/][^\s"']*)@(sha256:)?`)
	// port is the port of a host that a path follows.
	port = regexp.MustCompile(`^(?:[^/?#]*:)?[0-9]{1,5}[/?#]`)
)

// Hide replaces texts that look like secrets: private keys, tokens, invitations, cookies, users and
// values in URLs, and values named password or the like.
func Hide(text string) string {
	text = urlUser.ReplaceAllStringFunc(text, withoutUser)
	text = dsnUser.ReplaceAllStringFunc(text, func(dsn string) string {
		if m := dsnUser.FindStringSubmatch(dsn); m[3] == "" && !port.MatchString(m[2]) { // no image and no host
			return m[1] + "(hidden)@"
		}
		return dsn
	})
	for _, s := range secrets {
		text = s.found.ReplaceAllString(text, s.shown)
	}
	return text
}

// withoutUser hides the user in a URL that ends with an @, which may be one of its path or query.
func withoutUser(url string) string {
	m := urlUser.FindStringSubmatch(url)
	scheme, rest := m[1], m[2]
	authority := rest
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		authority = rest[:end]
	}
	switch at := strings.LastIndexByte(authority, '@'); {
	case authority != rest && at >= 0:
		return scheme + "(hidden)@" + rest[at+1:] + "@"
	case authority == rest, strings.Contains(authority, ":") && !port.MatchString(rest):
		return scheme + "(hidden)@"
	}
	return url
}
