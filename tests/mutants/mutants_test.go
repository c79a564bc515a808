package main

import "testing"

// TestEachFaultFitsTheCode fails when the code of a fault has changed: then write the fault anew.
func TestEachFaultFitsTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] {
			t.Errorf("two faults are named %q", m.name)
		}
		names[m.name] = true
		text, err := m.apply("../..")
		if err != nil {
			t.Errorf("%s: %v", m.name, err)
		} else if m.code == m.fault || text == "" {
			t.Errorf("%s: it changes nothing", m.name)
		}
	}
}
