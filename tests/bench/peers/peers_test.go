package peers

import "testing"

// TestWorkedOut goes on in a straight line, past columns that are about something else.
func TestWorkedOut(t *testing.T) {
	all := columnsOf("2,100,10,200+1")
	for i, connections := range []float64{9, 400, 40, 1} {
		for _, f := range figures {
			all[i].Add(f.Figure, connections)
		}
	}
	many := workedOut(all)
	if len(many) != 1 {
		t.Fatalf("%d columns", len(many))
	}
	if got := many[0].Values("connections +"); len(got) != 1 || got[0] != 4000 {
		t.Errorf("%v connections, want 4000", got)
	}
	if got := many[0].Values("rest in"); got != nil {
		t.Errorf("worked out what does not grow: %v", got)
	}
	if workedOut(all[:1]) != nil {
		t.Error("a line from one point")
	}
}
