package live_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/isthmus-mesh/isthmus/internal/live"
)

func TestWhoTakesFromAnInboxHasEverythingThatWasNoted(t *testing.T) {
	box := live.NewInbox([]int(nil))
	var noting sync.WaitGroup
	for n := range 100 {
		noting.Go(func() { box.Note(func(held *[]int) { *held = append(*held, n) }) })
	}
	var all []int
	for len(all) < 100 {
		<-box.News()
		box.Look(func(held *[]int) { all, *held = append(all, *held...), nil })
	}
	noting.Wait()
	if slices.Sort(all); all[0] != 0 || all[99] != 99 {
		t.Errorf("taken: %v", all)
	}
}
