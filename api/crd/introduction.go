package crd

import (
	"github.com/isthmus-mesh/isthmus/catalog"
)

func introductionRules() map[string]func(*schema) {
	selects := func(s *schema) {
		keepNull(s)
		s.Rules = []rule{{
			Rule:    "has(self.names) || has(self.labels)",
			Message: `selects by neither names nor labels; write at least one, such as names: ["*"] for every cluster`,
		}}
	}
	return map[string]func(*schema){
		"ClusterSpec.labels":      labels,
		"ClusterSelector":         selects,
		"ClusterSelector.names":   func(s *schema) { patterns(s, catalog.MaxClusterNames) },
		"ClusterSelector.labels":  labels,
		"Introduces":              selects,
		"Introduces.names":        func(s *schema) { patterns(s, catalog.MaxClusterNames) },
		"Introduces.labels":       labels,
		"Introduces.trustDomains": func(s *schema) { patterns(s, catalog.MaxTrustPatterns) },
	}
}

func labels(s *schema) {
	list(s, catalog.MaxLabels)
	s.MinItems, s.ListType = number(1), "set"
	s.Items.Pattern, s.Items.MinLength, s.Items.MaxLength = "^[-._/a-zA-Z0-9]+=[-._/a-zA-Z0-9]+$", number(3), number(catalog.MaxLabel)
}

func patterns(s *schema, most int) {
	list(s, most)
	s.MinItems = number(1)
	s.Items.Pattern, s.Items.MinLength, s.Items.MaxLength = "^[-._*a-z0-9]+$", number(1), number(catalog.MaxLabel)
}
