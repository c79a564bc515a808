package conformance

import (
	"testing"
	"time"

	nr "github.com/dapr/components-contrib/nameresolution"
)

// changes is the group of checks that wait for changes to be followed.
const changes = "Change"

var changeChecks = []check{
	{changes, "Joins", "calls go to an instance that joins", "", checkJoins},
	{changes, "Leaves", "no call goes to an instance that has left", "", checkLeaves},
	{changes, "Last", "calls fail once the last instance has left", "", checkLast},
	{changes, "Moves", "calls go to the new address of an app that moves", "", checkMoves},
	{changes, "Crash", "no call goes to an instance whose process was killed", "", checkCrash},
	{changes, "Prompt", "follows instances that join, and one that leaves, within 3 s", Prompt, checkPrompt},
}

func checkJoins(t *testing.T, w *world) {
	first := w.instance(w.app("orders"))
	w.register(t, first)
	s := w.start(t)
	s.awaitOnly(w.Within, request(first.AppID), first)
	second := w.instance(first.AppID)
	w.register(t, second)
	s.awaitOnly(w.Within, request(first.AppID), first, second)
}

func checkLeaves(t *testing.T, w *world) {
	first := w.instance(w.app("orders"))
	second := w.instance(first.AppID)
	leave := w.register(t, first)
	w.register(t, second)
	s := w.start(t)
	s.awaitOnly(w.Within, request(first.AppID), first, second)
	leave()
	s.awaitOnly(w.Within, request(first.AppID), second)
}

func checkLast(t *testing.T, w *world) {
	i := w.instance(w.app("orders"))
	leave := w.register(t, i)
	s := w.start(t)
	s.awaitOnly(w.Within, request(i.AppID), i)
	leave()
	s.awaitOnly(w.Within, request(i.AppID))
}

func checkMoves(t *testing.T, w *world) {
	old := w.instance(w.app("orders"))
	leave := w.register(t, old)
	s := w.start(t)
	s.awaitOnly(w.Within, request(old.AppID), old)
	leave()
	moved := w.instance(old.AppID)
	w.register(t, moved)
	s.awaitOnly(w.Within, request(old.AppID), moved)
}

func checkCrash(t *testing.T, w *world) {
	if w.Register != nil {
		t.Skip("the platform notices, and not the resolver")
	}
	first := w.instance(w.app("orders"))
	second := w.instance(first.AppID)
	crashing := w.sidecar(t, first)
	w.register(t, second)
	s := w.start(t)
	s.awaitOnly(w.Within, request(first.AppID), first, second)
	crashing.kill()
	s.awaitOnly(w.Within, request(first.AppID), second)
}

func checkPrompt(t *testing.T, w *world) {
	const joining = 4 // one alone may be lucky
	prompt := w.patient(3 * time.Second)
	instances := []nr.Instance{w.instance(w.app("orders"))}
	app := instances[0].AppID
	leave := w.register(t, instances[0])
	s := w.start(t)
	s.awaitOnly(w.Within, request(app), instances...)
	for range joining {
		i := w.instance(app)
		w.register(t, i)
		instances = append(instances, i)
	}
	s.awaitOnly(prompt, request(app), instances...)
	leave()
	s.awaitOnly(prompt, request(app), instances[1:]...)
}
