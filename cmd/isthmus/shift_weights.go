package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// basisPoints are hundredths of a percent of the calls.
type basisPoints uint64

// whole is 100 %.
const whole basisPoints = 10_000

// parsePercent reads a percentage with up to two decimals, such as 12.5%.
func parsePercent(flag, text string) (basisPoints, error) {
	number, percent := strings.CutSuffix(text, "%")
	f, err := strconv.ParseFloat(number, 64)
	if points := math.Round(f * 100); err == nil && percent && points >= 0 && points <= float64(whole) {
		return basisPoints(points), nil
	}
	return 0, fmt.Errorf("%s: %q is no percentage from 0%% to 100%%", flag, text)
}

// String is the percentage.
func (p basisPoints) String() string {
	return strconv.FormatFloat(float64(p)/100, 'f', -1, 64) + " %"
}

// toward is where so many steps lead, from one part to another.
func (p basisPoints) toward(target, step basisPoints, steps int) basisPoints {
	far := step * basisPoints(steps)
	if target > p {
		return min(target, p+far)
	}
	return p - min(far, p-target)
}

// partOf is how much of the calls of its priority a route gets by its weight. others are the weights of
// the other routes of that priority; nil if there is none.
func partOf(routes []catalog.RouteSpec, at int) (part basisPoints, others map[int]uint64) {
	var sum uint64
	for i, r := range routes {
		if i == at || r.Priority != routes[at].Priority {
			continue
		}
		if others == nil {
			others = map[int]uint64{}
		}
		others[i] = uint64(r.Weight)
		sum += others[i]
	}
	if sum += uint64(routes[at].Weight); sum > 0 {
		part = basisPoints(math.Round(float64(whole) * float64(routes[at].Weight) / float64(sum)))
	}
	return part, others
}

// shifted gives a route a part of the calls of its priority. The other routes share the rest by their
// weights; equally, if these are all 0. All add up to a round number where they can.
func shifted(routes []catalog.RouteSpec, at int, part basisPoints) []catalog.RouteSpec {
	_, shares := partOf(routes, at)
	idle := !slices.ContainsFunc(slices.Collect(maps.Values(shares)), func(w uint64) bool { return w > 0 })
	var own, sum, divisor, most uint64
	for i := range shares {
		if idle {
			shares[i] = 1
		}
		own += shares[i]
		shares[i] *= uint64(whole - part)
	}
	shares[at] = own * uint64(part)
	for _, w := range shares {
		divisor, sum, most = gcd(divisor, w), sum+w, max(most, w)
	}
	factor, least := uint64(1), sum/divisor
	for _, round := range [...]uint64{100, 1000, catalog.MaxWeight} {
		if round%least == 0 {
			factor = round / least
			break
		}
	}
	next := slices.Clone(routes)
	for i, w := range shares {
		w = w / divisor * factor
		if top := most / divisor * factor; top > catalog.MaxWeight && w > 0 {
			w = max(1, (w*catalog.MaxWeight+top/2)/top)
		}
		next[i].Weight = uint32(w)
	}
	return next
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// weights are those of routes, for people.
func weights(routes []catalog.RouteSpec) string {
	parts := make([]string, len(routes))
	for i, r := range routes {
		parts[i] = fmt.Sprintf("%s %d", r.Cluster, r.Weight)
		if r.Versions != "" {
			parts[i] = fmt.Sprintf("%s (%s) %d", r.Cluster, r.Versions, r.Weight)
		}
	}
	return strings.Join(parts, ", ")
}

// bound is what must hold of the calls that are seen.
type bound struct {
	text     string
	success  float64 // more than this, out of 1
	quantile float64 // or this quantile below a latency
	below    time.Duration
}

// parseBounds reads bounds separated by commas, such as success>99%,p99<300ms.
func parseBounds(text string) (bounds []bound, err error) {
	if text == "" {
		return nil, nil
	}
	for one := range strings.SplitSeq(text, ",") {
		one = strings.ReplaceAll(one, " ", "")
		s := bound{text: one}
		if least, ok := strings.CutPrefix(one, "success>"); ok {
			part, err := parsePercent("--while success", least)
			if err != nil {
				return nil, err
			}
			if s.success = float64(part) / float64(whole); part == whole {
				return nil, errors.New("--while success>100%: never holds")
			}
			bounds = append(bounds, s)
			continue
		}
		name, most, _ := strings.Cut(one, "<")
		s.quantile = map[string]float64{"p50": .5, "p95": .95, "p99": .99}[name]
		if s.below, err = time.ParseDuration(cmp.Or(most, "-")); err != nil || s.quantile == 0 || s.below <= 0 {
			return nil, fmt.Errorf("--while %q: want success>99%%, or p50, p95 or p99 such as p99<300ms; several with commas between them", one)
		}
		bounds = append(bounds, s)
	}
	return bounds, nil
}

// firstBroken is the first bound that does not hold for calls; empty if all do.
func firstBroken(bounds []bound, seen *traffic.Counts) string {
	for _, s := range bounds {
		if s.quantile == 0 && float64(seen.Good())/float64(seen.Calls()) <= s.success || s.quantile > 0 && seen.Quantile(s.quantile) >= s.below {
			return s.text
		}
	}
	return ""
}
