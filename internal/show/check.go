package show

import (
	"io"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/configstore/probe"
)

// CheckedOf is the answer that the check of a store is.
func CheckedOf(r *probe.Result, store string) *v1alpha1.StoreCheck {
	c := &v1alpha1.StoreCheck{Store: store, Good: r.Good(), Refused: refused(r.Refused)}
	for _, s := range r.Steps {
		step := &v1alpha1.StoreStep{Name: s.Name, Result: "ok", Milliseconds: float64(s.Took.Microseconds()) / 1000, Found: s.What}
		switch {
		case s.Err != nil:
			step.Result, step.Error = "failed", s.Err.Error()
		case !s.Tried:
			step.Result = "not tried"
		}
		c.Steps = append(c.Steps, step)
	}
	return c
}

// Check writes what the check of a store has found.
func Check(w io.Writer, c *v1alpha1.StoreCheck) error {
	Say(w, "store %s\n\n", c.GetStore())
	var table [][]string
	for _, s := range c.GetSteps() {
		took := ""
		if s.GetResult() != "not tried" {
			took = time.Duration(s.GetMilliseconds() * float64(time.Millisecond)).Round(10 * time.Microsecond).String()
		}
		found := s.GetFound()
		if s.GetError() != "" {
			found = strings.TrimPrefix(s.GetError(), "store "+c.GetStore()+": ")
		}
		table = append(table, []string{s.GetName(), s.GetResult(), took, found})
	}
	err := rows(w, []string{"STEP", "RESULT", "TOOK", "FOUND"}, table)
	for _, r := range c.GetRefused() {
		Say(w, "\nrefused: %s\n", r.GetError())
	}
	return err
}
