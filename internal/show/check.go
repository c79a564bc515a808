package show

import (
	"io"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/configstore/probe"
)

// Checked is what the check of a store has found, as programs read it.
type Checked struct {
	Store   string      `json:"store" yaml:"store"`
	Good    bool        `json:"good" yaml:"good"`
	Steps   []CheckStep `json:"steps" yaml:"steps"`
	Refused []Refused   `json:"refused" yaml:"refused"`
}

// CheckStep is one thing that was tried.
type CheckStep struct {
	Name   string  `json:"name" yaml:"name"`
	Result string  `json:"result" yaml:"result"` // ok, failed or not tried
	Millis float64 `json:"milliseconds" yaml:"milliseconds"`
	Found  string  `json:"found" yaml:"found"`
	Error  string  `json:"error" yaml:"error"`
}

// CheckedOf makes a result one for programs.
func CheckedOf(r *probe.Result, store string) Checked {
	c := Checked{Store: store, Good: r.Good(), Steps: make([]CheckStep, len(r.Steps)), Refused: RefusedOf(r.Refused)}
	for i, s := range r.Steps {
		step := CheckStep{Name: s.Name, Result: "ok", Millis: float64(s.Took.Microseconds()) / 1000, Found: s.What}
		switch {
		case s.Err != nil:
			step.Result, step.Error = "failed", s.Err.Error()
		case !s.Tried:
			step.Result = "not tried"
		}
		c.Steps[i] = step
	}
	return c
}

// Check writes what the check of a store has found.
func Check(w io.Writer, c Checked) error {
	Say(w, "store %s\n\n", c.Store)
	var table [][]string
	for _, s := range c.Steps {
		took := ""
		if s.Result != "not tried" {
			took = time.Duration(s.Millis * float64(time.Millisecond)).Round(10 * time.Microsecond).String()
		}
		found := s.Found
		if s.Error != "" {
			found = strings.TrimPrefix(s.Error, "store "+c.Store+": ")
		}
		table = append(table, []string{s.Name, s.Result, took, found})
	}
	err := rows(w, []string{"STEP", "RESULT", "TOOK", "FOUND"}, table)
	for _, r := range c.Refused {
		Say(w, "\nrefused: %s\n", r.Error)
	}
	return err
}
