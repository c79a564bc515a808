package faults

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// calls are calls in the order of their ends.
type calls []call

// since are the calls that ended after a moment.
func (c calls) since(moment time.Time) calls {
	for i := range c {
		if c[i].ended.After(moment) {
			return c[i:]
		}
	}
	return nil
}

// begunSince and begunBefore are the calls that began since a moment, or before it.
func (c calls) begunSince(moment time.Time) calls {
	return slices.DeleteFunc(slices.Clone(c), func(one call) bool { return one.begun.Before(moment) })
}

func (c calls) begunBefore(moment time.Time) calls {
	return slices.DeleteFunc(slices.Clone(c), func(one call) bool { return !one.begun.Before(moment) })
}

// percentile is how long so many of a hundred calls took at most; 0 without a call.
func (c calls) percentile(of int) time.Duration {
	if len(c) == 0 {
		return 0
	}
	took := make([]time.Duration, len(c))
	for i, one := range c {
		took[i] = one.ended.Sub(one.begun)
	}
	slices.Sort(took)
	return took[min(len(took)*of/100, len(took)-1)]
}

// failed are the calls that failed.
func (c calls) failed() (all calls) {
	for _, each := range c {
		if each.err != nil {
			all = append(all, each)
		}
	}
	return all
}

// lastBegun is when the last of the calls began, after a moment; 0 if there is none.
func (c calls) lastBegun(moment time.Time) (d time.Duration) {
	for _, each := range c {
		d = max(d, each.begun.Sub(moment))
	}
	return d
}

// gap is the longest time without an answer that ended after a moment, and when it began.
// None outlasts the moment from which on no call was made, however long the last of them
// took to end.
func (c calls) gap(moment time.Time) (longest time.Duration, from time.Time) {
	var last time.Time
	end := moment.Add(c.lastBegun(moment))
	until := func(answer time.Time) {
		if answer.After(end) {
			answer = end
		}
		if lasted := answer.Sub(last); !last.IsZero() && answer.After(moment) && lasted > longest {
			longest, from = lasted, last
		}
	}
	for _, each := range c {
		if each.err == nil {
			until(each.ended)
			last = each.ended
		}
	}
	until(end)
	return longest, from
}

// by is how many calls were answered by each instance, or with no number in the name, by
// each cluster.
func (c calls) by(numbers bool) map[string]int {
	count := map[string]int{}
	for _, each := range c {
		if each.err != nil {
			continue
		}
		name := each.by
		if !numbers {
			name, _, _ = strings.Cut(name, " ")
		}
		count[name]++
	}
	return count
}

// share is how many of a hundred answered calls a cluster answered in each span of time
// since a moment; -1 where there were none.
func (c calls) share(cluster string, moment time.Time, span time.Duration) (shares []int) {
	for from := moment; len(c) > 0 && from.Add(span).Before(c[len(c)-1].begun); from = from.Add(span) {
		all, its := 0, 0
		for _, each := range c {
			if each.err == nil && !each.begun.Before(from) && each.begun.Before(from.Add(span)) {
				all++
				if strings.HasPrefix(each.by, cluster+" ") {
					its++
				}
			}
		}
		if all == 0 {
			shares = append(shares, -1)
			continue
		}
		shares = append(shares, (100*its+all/2)/all)
	}
	return shares
}

// changing are parts of errors that differ from call to call.
var changing = regexp.MustCompile(`127\.0\.0\.1:\d+|\d+(\.\d+)?m?s\b|id: \w+|attempt=\d+|"http[^"]*"|call http://\S+`)

// reasons are the different errors, and how often each was.
func (c calls) reasons() string {
	count := map[string]int{}
	for _, each := range c {
		if each.err != nil {
			text := changing.ReplaceAllString(each.err.Error(), "…")
			count[text[:min(len(text), 300)]]++
		}
	}
	var text strings.Builder
	for i, reason := range slices.SortedFunc(maps.Keys(count), func(a, b string) int { return count[b] - count[a] }) {
		if i == 6 {
			fmt.Fprintf(&text, "  and %d other reasons\n", len(count)-i)
			break
		}
		fmt.Fprintf(&text, "  %d × %s\n", count[reason], reason)
	}
	return text.String()
}
