package configstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/isthmus-mesh/isthmus/catalog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a Store whose Watches do what a test wrote down, one after the other; the
// last one goes on until its context ends.
type script struct {
	watches []func(from Version, deliver func(Change) error) error
	froms   []Version
	times   []time.Time
}

func (s *script) Watch(ctx context.Context, from Version, deliver func(Change) error) error {
	n := len(s.froms)
	s.froms, s.times = append(s.froms, from), append(s.times, time.Now())
	if n < len(s.watches) {
		if err := s.watches[n](from, deliver); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (s *script) Close() error { return nil }

func cluster(name, network string) Stored {
	return Stored{Object: &catalog.Cluster{Name: name, Network: network}, Revision: network}
}

func clusterKey(name string) catalog.Key { return catalog.Key{Kind: catalog.KindCluster, Name: name} }

// brief is a change in few words.
func brief(c Change) string {
	var words []string
	if c.Full {
		words = append(words, "full")
	}
	for _, s := range c.Objects {
		words = append(words, "+"+s.Object.Key().Name+"="+s.Revision)
	}
	for _, key := range c.Deleted {
		words = append(words, "-"+key.Name)
	}
	return strings.Join(words, " ")
}

// run lets a Follower follow the script for a while, and returns what it handed on.
func run(t *testing.T, s *script, d time.Duration) (handed []string, f *Follower) {
	f = NewFollower(s, func(c Change) error {
		handed = append(handed, brief(c))
		return nil
	}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := f.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run ended with %v, want the context's error", err)
	}
	return handed, f
}

func TestAFollowerGoesOnWhereItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := errors.New("connection lost")
		s := &script{watches: []func(Version, func(Change) error) error{
			func(_ Version, deliver func(Change) error) error {
				return errors.Join(deliver(Change{Full: true, Objects: []Stored{cluster("east", "a")}, Version: "1"}),
					deliver(Change{Objects: []Stored{cluster("west", "a")}, Version: "2"}), lost)
			},
			func(Version, func(Change) error) error { return lost },
			func(_ Version, deliver func(Change) error) error {
				return deliver(Change{Deleted: []catalog.Key{clusterKey("east")}, Version: "3"})
			},
		}}
		handed, f := run(t, s, time.Minute)
		if got := strings.Join(handed, "; "); got != "full +east=a; +west=a; -east" {
			t.Errorf("handed on %q", got)
		}
		if got := fmt.Sprint(s.froms); got != "[ 2 2]" {
			t.Errorf("watched from %s, want from the start and then twice from 2", got)
		}
		if status, _ := f.Status().Load(); !status.Synced || status.Err != nil || status.Version != "3" || status.Objects != 1 {
			t.Errorf("status %+v; want all well at version 3 with one object", status)
		}
	})
}

func TestAFullSetAfterAFailureComesToWhatIsDifferent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := Refusal{Key: clusterKey("bad"), Where: "key", Err: errors.New("bad")}
		s := &script{watches: []func(Version, func(Change) error) error{
			func(_ Version, deliver func(Change) error) error {
				return errors.Join(deliver(Change{Full: true, Objects: []Stored{cluster("bad", "a"), cluster("east", "a"), cluster("gone", "a"), cluster("west", "a")}, Version: "1"}), errors.New("lost"))
			},
			func(_ Version, deliver func(Change) error) error {
				return deliver(Change{Full: true, Objects: []Stored{cluster("east", "a"), cluster("west", "b")}, Refused: []Refusal{refused}, Version: "9"})
			},
		}}
		handed, f := run(t, s, time.Minute)
		if got := strings.Join(handed, "; "); got != "full +bad=a +east=a +gone=a +west=a; +west=b -gone" {
			t.Errorf("handed on %q; want the difference only, and the refused object standing", got)
		}
		if status, _ := f.Status().Load(); status.Objects != 3 || len(status.Refused) != 1 {
			t.Errorf("status %+v; want three objects that stand and one that is refused", status)
		}
	})
}

func TestAFailingStoreIsTriedAgainEverMoreSeldom(t *testing.T) {
	for _, c := range []struct {
		name        string
		err         error
		first, last time.Duration
		most        int // tries in two minutes
	}{
		{"one that is away, so often that its return is seen at once", errors.New("connection refused"), firstPause, lastPause, 650},
		{"one that refuses our credentials, so seldom that it does not mind", fmt.Errorf("403: %w", ErrDenied), firstDenied, lastDenied, 25},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &script{}
				for range 1000 {
					s.watches = append(s.watches, func(Version, func(Change) error) error { return c.err })
				}
				begin := time.Now()
				_, f := run(t, s, 2*time.Minute)
				if n := len(s.times); n < 12 || n > c.most {
					t.Errorf("tried %d times in two minutes, want at most %d", n, c.most)
				}
				if pause := s.times[1].Sub(s.times[0]); pause < c.first*3/4 || pause > c.first*5/4 {
					t.Errorf("first tried again after %s, want %s or so", pause, c.first)
				}
				for i := 1; i < len(s.times); i++ {
					if pause := s.times[i].Sub(s.times[i-1]); pause > c.last*5/4 {
						t.Errorf("try %d came after %s, want at most %s", i, pause, c.last*5/4)
					}
				}
				status, _ := f.Status().Load()
				if !errors.Is(status.Err, c.err) || !status.Since.Equal(begin) || status.Synced {
					t.Errorf("status %+v; want the error, since the first failure, and no full set yet", status)
				}
			})
		})
	}
}

func TestAStoreThatAnswersAndFailsAtOnceIsNotAskedForEverythingAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		for range 10_000 {
			s.watches = append(s.watches, func(_ Version, deliver func(Change) error) error {
				return errors.Join(deliver(Change{Full: true, Version: "1"}), errors.New("reset by peer"))
			})
		}
		run(t, s, time.Minute)
		if n := len(s.times); n < 12 || n > 30 {
			t.Errorf("read in full %d times in a minute; want soon at first, and then each 5 s or so", n)
		}
		if pause := s.times[1].Sub(s.times[0]); pause > firstPause*5/4 {
			t.Errorf("first tried again after %s, want %s or so", pause, firstPause)
		}
	})
}

func TestAFailureAfterATimeOfPeaceIsTriedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := func(Version, func(Change) error) error { return errors.New("connection refused") }
		s := &script{}
		for range 20 {
			s.watches = append(s.watches, away)
		}
		var failed time.Time
		s.watches = append(s.watches, func(_ Version, deliver func(Change) error) error {
			err := deliver(Change{Full: true, Version: "1"})
			time.Sleep(stable)
			failed = time.Now()
			return errors.Join(err, errors.New("reset by peer"))
		})
		run(t, s, time.Minute)
		if pause := s.times[len(s.times)-1].Sub(failed); pause > firstPause*5/4 {
			t.Errorf("tried again after %s, want %s or so", pause, firstPause)
		}
	})
}

func TestTheStatusIsThatOfWhatWasApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f *Follower
		s := &script{watches: []func(Version, func(Change) error) error{func(_ Version, deliver func(Change) error) error {
			return deliver(Change{Full: true, Version: "1"})
		}}}
		f = NewFollower(s, func(Change) error {
			if status, ok := f.Status().Load(); ok && status.Synced {
				t.Error("the status told of a change before it was applied")
			}
			return nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- f.Run(ctx) }()
		if status, err := f.Status().Wait(t.Context()); err != nil || !status.Synced {
			t.Errorf("status %+v, %v", status, err)
		}
		cancel()
		<-done
	})
}

func TestWhatEndsAFollower(t *testing.T) {
	broken := errors.New("topology is broken")
	for _, c := range []struct {
		name  string
		watch func(Version, func(Change) error) error
		apply error
		want  error
	}{
		{"an error of apply", func(_ Version, deliver func(Change) error) error { return deliver(Change{Full: true, Version: "1"}) }, broken, broken},
		{"a closed store", func(Version, func(Change) error) error { return ErrClosed }, nil, ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := NewFollower(&script{watches: []func(Version, func(Change) error) error{c.watch}}, func(Change) error { return c.apply }, slog.New(slog.DiscardHandler))
			if err := f.Run(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("Run ended with %v, want %v", err, c.want)
			}
		})
	}
}

func TestAStoreThatDoesNotBeginWithTheFullSetIsNotBelieved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{watches: []func(Version, func(Change) error) error{
			func(_ Version, deliver func(Change) error) error {
				return deliver(Change{Objects: []Stored{cluster("east", "a")}, Version: "1"})
			},
			func(_ Version, deliver func(Change) error) error {
				return deliver(Change{Full: true, Objects: []Stored{cluster("west", "a")}, Version: "2"})
			},
		}}
		handed, _ := run(t, s, time.Minute)
		if got := strings.Join(handed, "; "); got != "full +west=a" {
			t.Errorf("handed on %q, want the full set alone", got)
		}
	})
}

func TestWhatAFollowerLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := Refusal{Key: clusterKey("bad"), Where: "isthmus/v1alpha1/Cluster/bad", Err: errors.New("spec: is missing")}
		s := &script{watches: []func(Version, func(Change) error) error{
			func(_ Version, deliver func(Change) error) error {
				return errors.Join(deliver(Change{Full: true, Refused: []Refusal{bad}, Version: "1"}),
					deliver(Change{Objects: []Stored{cluster("east", "a")}, Refused: []Refusal{bad}, Version: "2"}), errors.New("lost"))
			},
			func(Version, func(Change) error) error { return errors.New("lost again") },
			func(_ Version, deliver func(Change) error) error {
				return deliver(Change{Refused: []Refusal{bad}, Version: "2"})
			},
		}}
		var log bytes.Buffer
		f := NewFollower(s, func(Change) error { return nil }, slog.New(slog.NewTextHandler(&log, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = f.Run(ctx)
		for what, want := range map[string]int{"object refused": 1, "can't be watched": 1, "is back": 1} {
			if got := strings.Count(log.String(), what); got != want {
				t.Errorf("%q was logged %d times, want %d:\n%s", what, got, want, log.String())
			}
		}
	})
}

func TestWhatAFullSetTakesAway(t *testing.T) {
	inFile := func(name, file string) Stored {
		return Stored{Object: &catalog.Cluster{Name: name, Source: catalog.Source{File: file, Line: 1}}, Revision: name}
	}
	begin := Change{Full: true, Objects: []Stored{inFile("east", "a.yaml"), inFile("north", "b.yaml"), cluster("west", "a")}}
	for _, c := range []struct {
		name   string
		change Change
		want   string
	}{
		{"what it does not hold", Change{Full: true}, "-east -north -west"},
		{"nothing that it refuses by name", Change{Full: true, Refused: []Refusal{{Key: clusterKey("west"), Where: "k", Err: ErrInvalid}}}, "-east -north"},
		{"nothing of a file that it refuses", Change{Full: true, Refused: []Refusal{{Where: "a.yaml", Err: ErrInvalid}}}, "-north -west"},
		{"nothing for a foreign key", Change{Full: true, Refused: []Refusal{{Where: "isthmus/v1alpha1/README", Err: ErrInvalid}}}, "-east -north -west"},
		{"only what changed otherwise", Change{Objects: []Stored{cluster("west", "a")}, Deleted: []catalog.Key{clusterKey("north"), clusterKey("unknown")}}, "-north"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s Set
			s.Apply(begin)
			if got := brief(s.Apply(c.change)); got != c.want {
				t.Errorf("came to %q, want %q", got, c.want)
			}
		})
	}
}
