package dial

import "time"

// A gateway that vanishes with its machine or its link says nothing: TCP sends again
// for many minutes, and calls hang. So, while there are calls under way through a
// gateway that says nothing on any connection, a new connection is asked for. The
// kernel of a gateway that is there answers that at once, however busy its apps are.
// No answer to several such probes, while another gateway of the cluster does answer,
// means that it is gone.
const (
	// watchEvery is how often a gateway with calls under way is looked at. Time is counted
	// in these: a process that did not run has not waited.
	watchEvery = 50 * time.Millisecond
	// restAfter is how long a watch outlasts the last call.
	restAfter = time.Second
	// shortestSilence is how long a gateway may say nothing before it is probed, on a link
	// that is quick; longestSilence on any, and where it answered probes before. Streams
	// are silent for hours: after so many answers it may last longer still.
	shortestSilence = 200 * time.Millisecond
	longestSilence  = 2 * time.Second
	manyAnswers     = 30
	streamSilence   = 10 * time.Second
	// probes are sent at a time, in the first half of what they are given; that is
	// three times there and back, within these bounds.
	probes         = 6
	shortestAnswer = 450 * time.Millisecond
	longestAnswer  = 5 * time.Second
)

// watch looks after a gate for as long as calls go through it.
func (g *gate) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var (
		words          = g.words.Load()
		silent, unused time.Duration
		answered       int // inquiries in a row
	)
	for {
		select {
		case <-g.ctx.Done():
			return
		case <-tick.C:
		}
		calls, now := g.calls.Load(), g.words.Load()
		if calls == 0 {
			silent, answered = 0, 0
			if unused += watchEvery; unused >= restAfter {
				if g.rest() {
					return
				}
				unused = 0
			}
			continue
		}
		unused = 0
		if now != words {
			words, silent, answered = now, 0, 0
			continue
		}
		if silent += watchEvery; silent < g.patience(answered) {
			continue
		}
		others := g.others()
		if len(others) == 0 {
			continue // nothing would be won
		}
		g.doubted.Store(true)
		if newInquiry(g, others).gone() {
			g.bury()
		}
		g.doubted.Store(false)
		silent = 0
		answered++
	}
}

// patience is how long a gate may be silent before it is probed: longer on a slow link,
// and each time that it answered, since then it is an app that takes its time.
func (g *gate) patience(answered int) time.Duration {
	d := max(shortestSilence, time.Duration(g.trip.Load())*3/2)
	if answered > manyAnswers {
		return streamSilence
	}
	return min(d<<min(answered, 8), longestSilence)
}

// bury breaks off what goes through a gate that is gone.
func (g *gate) bury() {
	if n := g.cut(); n > 0 {
		g.fleet.log.Warn("a gateway does not answer any more, and others of its cluster do: calls go through those; see whether its machine and the link to it are up",
			"cluster", g.fleet.cluster, "gateway", g.address, "connections", n)
	}
}
