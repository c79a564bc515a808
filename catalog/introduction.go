package catalog

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Bounds of labels and of what selects by them.
const (
	MaxLabels        = 32  // of a cluster, or of a selector
	MaxLabel         = 127 // characters of a label
	MaxClusterNames  = 100 // patterns of a selector
	MaxTrustPatterns = 100
)

// ClusterSelector selects clusters: those that one of Names matches, and that have all Labels.
type ClusterSelector struct {
	Names  []string // patterns, where '*' stands for any characters; none: any name
	Labels []string // "name=value"
}

// Selects tells whether a cluster is one of them.
func (s *ClusterSelector) Selects(name string, labels []string) bool {
	if len(s.Names) > 0 && !matchesAny(s.Names, name) {
		return false
	}
	return !slices.ContainsFunc(s.Labels, func(label string) bool { return !slices.Contains(labels, label) })
}

// Introduces says which clusters another cluster may introduce here.
type Introduces struct {
	ClusterSelector
	TrustDomains []string // patterns of those that they may have besides this cluster's own
}

// TrustsDomain tells whether an introduced cluster may have a trust domain.
func (i *Introduces) TrustsDomain(domain string) bool { return matchesAny(i.TrustDomains, domain) }

func matchesAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, _ := path.Match(pattern, s) // patterns were checked
		return ok
	})
}

// CheckClusterLabel checks one label of a cluster.
func CheckClusterLabel(label string) error {
	if len(label) > MaxLabel {
		return fmt.Errorf("the label is %d characters long; at most %d are taken", len(label), MaxLabel)
	}
	for i, c := range label {
		if letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'; !letter && !strings.ContainsRune("-._/=", c) {
			return fmt.Errorf("the label has %q at position %d; letters, digits and - . _ / are taken around one =", c, i+1)
		}
	}
	if name, value, ok := strings.Cut(label, "="); !ok || name == "" || value == "" || strings.Contains(value, "=") {
		return fmt.Errorf("%q is no label", label)
	}
	return nil
}

// CheckNamePattern checks a pattern of names: those of clusters, or of trust domains.
func CheckNamePattern(pattern string) error {
	if pattern == "" || len(pattern) > MaxLabel {
		return fmt.Errorf("the pattern is %d characters long; 1 to %d are taken", len(pattern), MaxLabel)
	}
	for i, c := range pattern {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-._*", c) {
			return fmt.Errorf("the pattern has %q at position %d; lower-case letters, digits and - . _ * are taken", c, i+1)
		}
	}
	return nil
}
