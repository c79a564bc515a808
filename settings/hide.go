package settings

import "regexp"

// secrets are what gives access wherever it stands in a text, and what is shown in its place.
var secrets = []struct {
	found *regexp.Regexp
	shown string
}{
	{regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s:,\\-]*?-----END [A-Z0-9 ]*PRIVATE KEY-----|[A-Za-z0-9+/=\s:,\\-]*)`), "(hidden: a private key)"},
	{regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^/?#@\s"']*@`), "${1}(hidden)@"},
	{regexp.MustCompile(`(^|[\s"'=,])[^\s"'/:@=,]+:[^\s"'/:@]+@`), "${1}(hidden)@"},
	{regexp.MustCompile(`([?&][A-Za-z0-9_.-]+=)[^&#\s"'\\]+`), "${1}(hidden)"},
	{regexp.MustCompile(`(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{8,}`), "${1} (hidden)"},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), "(hidden: a token)"},
	{regexp.MustCompile(`(?i)\b([a-z_.-]*(?:password|passwd|secret|token|api-?key|access-?key)["']?\s*[=:]\s*["']?)[^\s"',;{}()\[\]\\]{4,}`), "${1}(hidden)"},
}

// Hide replaces what looks like a secret in a text: private keys, tokens, users and values in URLs,
// and what is called a password or the like.
func Hide(text string) string {
	for _, s := range secrets {
		text = s.found.ReplaceAllString(text, s.shown)
	}
	return text
}
