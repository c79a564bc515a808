package peering

import (
	"fmt"
	"time"
)

// Describe returns one line for people about the link to a cluster.
func (l *Links) Describe(cluster string) string {
	l.mu.Lock()
	r := l.links[cluster]
	l.mu.Unlock()
	if r == nil {
		return "no Cluster object for it here, or one without a gateway for all apps, so it is not asked"
	}
	streams, _, _ := l.subscriptions(cluster)
	text := r.status.describe(r.lease.state(), streams)
	if object, _ := r.object.Load(); object.IntroducedBy != "" {
		text += "; introduced by " + object.IntroducedBy
	}
	return text
}

// describe returns a line about the link. streams is how many streams the peer has to this
// cluster.
func (s *linkStatus) describe(lease leaseState, streams int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.resting && lease.last.IsZero():
		return "not heard yet, and asked seldom, since nothing here leads to it" + s.cause()
	case s.resting:
		return fmt.Sprintf("at rest, since nothing here leads to it; heard %s ago", seconds(time.Since(lease.last))) + s.cause()
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

// lastHeard says when the latest message arrived; mu is held.
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

// lossReason says why routes to the peer are no longer used.
func (s *linkStatus) lossReason(lease leaseState) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lapseText(lease) + s.dampedText(lease)
}

// dampedText says how long the peer stays damped, if it is.
func (s *linkStatus) dampedText(lease leaseState) string {
	if lease.damped.IsZero() {
		return ""
	}
	return fmt.Sprintf("; damped for %s after %s in 60 s", seconds(time.Until(lease.damped)), plural(lease.recent, "lapse"))
}

// lapseText says how the lease ended; mu is held.
func (s *linkStatus) lapseText(lease leaseState) string {
	ago := seconds(time.Since(lease.ended))
	if lease.reason != "" {
		return fmt.Sprintf("lease ended %s ago: %s", ago, lease.reason)
	}
	return fmt.Sprintf("lease ran out %s ago: no answer for %s%s", ago, seconds(time.Since(lease.last)), s.cause())
}

// unansweredFor is how long status mentions a message that echoes no recent ping.
const unansweredFor = 10 * time.Second

// cause is the latest reason for silence; mu is held.
func (s *linkStatus) cause() string {
	if !s.unanswered.IsZero() && time.Since(s.unanswered) < unansweredFor {
		return "; messages from it arrive, but messages to it do not"
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

// reverseText says if the peer does not hear this cluster; mu is held.
func (s *linkStatus) reverseText() string {
	switch {
	case !s.hearsKnown || s.hears == connected:
		return ""
	case s.hears == "":
		return "; one-way: no app there calls this cluster"
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
