package crd

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/catalog"
)

func guestRules() map[string]func(*schema) {
	return map[string]func(*schema){
		"Guest": func(s *schema) {
			s.Required = []string{"until", "apps"}
			keepNull(s)
			s.Rules = []rule{{
				Rule:    "!has(self.takes) || self.takes.all(t, t.app in self.apps)",
				Message: "takes has an app that is none of apps; write it there too, or another here",
			}}
		},
		"Guest.until": func(s *schema) {
			s.Format, s.MaxLength = "date-time", number(len("2026-11-28T20:00:00.123456789+01:00"))
			s.Pattern = `^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?(Z|[-+][0-9]{2}:[0-9]{2})$`
		},
		"Guest.apps": func(s *schema) {
			list(s, api.MaxGuestApps)
			s.MinItems, s.ListType = number(1), "set"
			fullName(s.Items)
		},
		"Guest.takes": func(s *schema) { list(s, api.MaxTakes) },
		"Take": func(s *schema) {
			s.Required = []string{"app"}
			keepNull(s)
			s.Rules = []rule{{
				Rule:    "has(self.caller) != has(self.header)",
				Message: "wants exactly one of caller and header",
			}, {
				Rule:    "!has(self.caller) || self.caller != self.app",
				Message: "has the app itself for a caller, which always resolves to its own instance; write another app",
			}}
		},
		"Take.app":    fullName,
		"Take.caller": fullName,
		"HeaderValue": func(s *schema) { s.Required = []string{"name", "value"} },
		"HeaderValue.name": func(s *schema) {
			s.Pattern, s.MinLength, s.MaxLength = "^[-_.a-zA-Z0-9]+$", number(1), number(catalog.MaxHeader)
			s.Not = &schema{Pattern: "-[bB][iI][nN]$"}
		},
		"HeaderValue.value": func(s *schema) {
			s.Pattern, s.MinLength, s.MaxLength = "^[!-~]+$", number(1), number(catalog.MaxHeaderValue)
		},
	}
}

// fullName is "namespace/app-id".
func fullName(s *schema) {
	s.Pattern = fmt.Sprintf("^%s/%s$", label, label)
	s.MinLength, s.MaxLength = number(3), number(longest(catalog.CheckNamespace)+1+longest(catalog.CheckHostAppID))
}
