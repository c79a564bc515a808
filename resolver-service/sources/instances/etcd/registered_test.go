package etcd

import "testing"

// What others wrote can be known before the answer to a write of ours is, or after it.
func TestWhoeverWroteLastHasTheInstance(t *testing.T) {
	const key = "shop/orders/a"
	says := func(revision int64) func(string) int64 { return func(string) int64 { return revision } }
	for _, c := range []struct {
		what  string
		steps func(o *registered, e entry) (taken bool)
		kept  bool
	}{
		{"nobody else wrote", func(o *registered, e entry) bool { return o.written(e, 20, says(0)) != nil }, true},
		{"another wrote before", func(o *registered, e entry) bool { return o.written(e, 20, says(10)) != nil }, true},
		{"another wrote after, as is known", func(o *registered, e entry) bool { return o.written(e, 20, says(30)) != nil }, false},
		{"another wrote after, as is known later", func(o *registered, e entry) bool {
			return o.written(e, 20, says(0)) == nil && o.overwritten(pair{key: key, revision: 30}, "r1") != nil
		}, false},
		{"another is told of before our answer", func(o *registered, e entry) bool {
			return o.overwritten(pair{key: key, revision: 30}, "r1") == nil && o.written(e, 20, says(30)) != nil
		}, false},
		{"another has the key, and nobody has told of it", func(o *registered, e entry) bool {
			_ = o.written(e, 20, says(0))
			return o.heldByOther(e, says(0)) != nil
		}, true},
		{"another has the key, as was told", func(o *registered, e entry) bool {
			_ = o.written(e, 20, says(0))
			return o.heldByOther(e, says(30)) != nil
		}, false},
		{"it was deleted before our write", func(o *registered, e entry) bool {
			_ = o.written(e, 20, says(0))
			_ = o.missing(key, 10)
			return len(o.dirty) > 0
		}, true},
	} {
		s := &Source{registered: newRegistered(), replicated: newReplicated()}
		s.registers(orders("a", "10.0.0.1:50002"), func() {})
		batch := s.registered.take(1)
		taken := c.steps(s.registered, batch[0])
		if kept := len(s.registered.keys()) == 1; kept != c.kept || taken == c.kept {
			t.Errorf("%s: kept %t, taken %t", c.what, kept, taken)
		}
	}
}
