package peering

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Describe says in a line how a cluster's resolver service is heard, for people.
func (l *Links) Describe(cluster string) string {
	l.mu.Lock()
	r := l.links[cluster]
	l.mu.Unlock()
	if r == nil {
		return "there is no link to it: its Cluster object is missing, or has no gateway for all apps"
	}
	streams, _ := l.subscriptions(cluster)
	return r.status.describe(r.lease.state(), streams)
}

// describe says how the peer is heard, and whether it hears this cluster by so many
// streams.
func (s *linkStatus) describe(lease leaseState, streams int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case lease.fresh && !lease.damped.IsZero():
		return fmt.Sprintf("damped for up to %s more after %s in 60 s, %d in all; %s",
			seconds(time.Until(lease.damped)), plural(lease.recent, "lapse"), lease.lapses, s.lastHeard(lease))
	case lease.last.IsZero():
		return "not heard yet" + s.cause()
	case !lease.fresh:
		text := s.lapseText(lease) + s.dampedText(lease)
		if streams > 0 {
			text += "; it hears this cluster"
		}
		return text
	}
	return s.lastHeard(lease) + s.reverseText()
}

// word says when the latest word came; with mu held.
func (s *linkStatus) lastHeard(lease leaseState) string {
	text := fmt.Sprintf("heard %s ago, lease %s left", seconds(time.Since(lease.last)), seconds(lease.left))
	if lease.restarting {
		text += "; it has said that it is being restarted"
	}
	if len(s.streams) == 0 {
		text += s.cause()
	}
	return text
}

// lost says why a peer is not relied on any more.
func (s *linkStatus) lossReason(lease leaseState) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lapseText(lease) + s.dampedText(lease)
}

// damped says that a peer will not be relied on at once when it is heard again.
func (s *linkStatus) dampedText(lease leaseState) string {
	if lease.damped.IsZero() {
		return ""
	}
	return fmt.Sprintf("; damped for %s after %s in 60 s", seconds(time.Until(lease.damped)), plural(lease.recent, "lapse"))
}

// lapse says how the lease ended; with mu held.
func (s *linkStatus) lapseText(lease leaseState) string {
	ago := seconds(time.Since(lease.ended))
	if lease.reason != "" {
		return fmt.Sprintf("lease ended %s ago: %s", ago, lease.reason)
	}
	return fmt.Sprintf("lease ran out %s ago: no answer for %s%s", ago, seconds(time.Since(lease.last)), s.cause())
}

// deafFor is how long a word that answers nothing is worth telling of.
const unansweredFor = 10 * time.Second

// because is the latest reason why nothing is heard; with mu held.
func (s *linkStatus) cause() string {
	if !s.unanswered.IsZero() && time.Since(s.unanswered) < unansweredFor {
		return "; its words come, but what this cluster sends does not get there"
	}
	if s.err != nil {
		return "; " + s.err.Error()
	}
	if s.gateways != nil {
		if err := s.gateways.lastError(); err != nil {
			return "; " + err.Error()
		}
	}
	return ""
}

// heardBy says so when the peer does not hear this cluster; with mu held.
func (s *linkStatus) reverseText() string {
	switch {
	case !s.hearsKnown || s.hears == connected:
		return ""
	case s.hears == "":
		return "; it has no link to this cluster"
	default:
		return fmt.Sprintf("; it does not hear this cluster (its link is %s)", s.hears)
	}
}

func seconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", max(d, 0).Seconds())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// printable is what a peer wrote, fit for a terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}
