package check

import (
	"strings"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// callFaults returns a check that tells of the faults of calls under its name.
func callFaults(name string) func(*Facts) []Result {
	return func(f *Facts) (all []Result) {
		for _, c := range f.Faults {
			if c.GetCheck() != name {
				continue
			}
			var names []string
			for _, a := range []*v1alpha1.App{c.GetCaller(), c.GetCallee()} {
				if a != nil {
					names = append(names, appName(a))
				}
			}
			all = append(all, Result{Level: Level(c.GetLevel()), Kind: ofApp, Name: strings.Join(names, " to "), Found: c.GetWhat(), Fix: c.GetFix()})
		}
		return all
	}
}
