package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Samples are the values of one figure, one for each round.
type Samples []float64

// Median is the middle value; 0 where there are none.
func (s Samples) Median() float64 { return Median(s) }

// Best is the smallest value; 0 where there are none.
func (s Samples) Best() float64 { return Quantile(s, 0) }

// Times is how many times those of another these are, round by round.
func (s Samples) Times(of Samples) Samples {
	all := make(Samples, len(s))
	for i := range s {
		all[i] = s[i] / of[i]
	}
	return all
}

// Quartiles are the first and the third, for people.
func (s Samples) Quartiles() string {
	return fmt.Sprintf("%.3f to %.3f", Quantile(s, .25), Quantile(s, .75))
}

// Turns measures every subject once a round, in another order each time, so that what else
// the machine does concerns all alike.
func Turns[S any](ctx context.Context, rounds int, subjects []S, measure func(context.Context, S) error) error {
	told := time.Now()
	for round := range rounds {
		for _, i := range rand.Perm(len(subjects)) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := measure(ctx, subjects[i]); err != nil {
				return err
			}
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			Progress("%d of %d rounds", round+1, rounds)
		}
	}
	return nil
}

// Column is a figure of all that is compared.
type Column[S any] struct {
	Head, Format string
	Of           func(S) float64
	NoTimes      bool // no ratio in brackets
}

// Compare is a table in which each figure has in brackets how many times that of the
// reference it is, if there is one.
func Compare[S comparable](title string, all []S, reference S, name func(S) string, columns []Column[S]) *Table {
	table := &Table{Title: title, Head: []string{""}}
	for _, c := range columns {
		table.Head = append(table.Head, c.Head)
	}
	for _, s := range all {
		row := []string{name(s)}
		for _, c := range columns {
			cell := fmt.Sprintf(c.Format, c.Of(s))
			if !c.NoTimes && slices.Contains(all, reference) && c.Of(reference) != 0 {
				cell += fmt.Sprintf(" (%.2f)", c.Of(s)/c.Of(reference))
			}
			row = append(row, cell)
		}
		table.Add(row...)
	}
	return table
}

// AtOnce shares n out among so many workers, and returns their errors.
func AtOnce(workers, n int, work func(n int) error) error {
	errs := make([]error, workers)
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() { errs[i] = work((n + i) / workers) })
	}
	group.Wait()
	return errors.Join(errs...)
}
