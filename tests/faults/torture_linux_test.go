package faults

import (
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/isthmus-mesh/isthmus/tests/sandbox"
	"github.com/isthmus-mesh/isthmus/tests/sandbox/stalls"
)

// "make torture" sets these; nothing else does.
var (
	tortureLasts  = flag.Duration("torture", 0, "how long TestTorture makes random faults, over all stores")
	tortureSeed   = flag.Uint64("seed", 0, "which faults TestTorture makes; 0: those of a seed that it chooses and prints")
	tortureStores = flag.String("stores", "file,embedded,etcd,consul,redis,postgres,kubernetes", "the stores of the caller's cluster, in turn")
	tortureReport = flag.String("report", "", "the file that has the report of TestTorture in JSON")
)

const (
	striking = 40 * time.Second // how long faults begin in a round
	atATime  = 3                // faults at most
	tells    = 5                // that a property did not hold, for each round, at most in a row
	// recovered is how long after the last fault of a round all calls are answered. That status and check
	// say so may take for longer, see cleared: they tell of the last minute.
	recovered = 30 * time.Second
	// trying is how long an app makes calls that it never may, in each round, since status and check tell of them.
	trying = 10 * time.Second
	// onceInForce is how long a change of an object that was acknowledged may take until no call goes
	// by the object as it was.
	onceInForce = 2 * time.Second
)

// ordeal is clusters under faults by chance, and what came of their calls.
type ordeal struct {
	*lab
	t         *testing.T
	callers   []*ordealCaller
	registers []*register
	blows     [][]blow // by class
	base      map[string]usage
	spent     []span            // in which processes between a writer and callers of west were at fault
	struck    map[string][]span // in which something was at fault, by what it was
	began     time.Time         // the round
	calm      time.Time         // when calls were answered again after the last fault
	watch     *stalls.Watch
	mu        sync.Mutex
	ordealReport
}

// ordealReport is what is told of an ordeal in the end.
type ordealReport struct {
	Store      string          `json:"store"`
	Seed       uint64          `json:"seed"`
	Lasted     time.Duration   `json:"lasted"` // in nanoseconds, as all below
	Rounds     int             `json:"rounds"`
	Calls      int             `json:"calls"`
	Refused    map[string]int  `json:"refused"` // by reason, those that never may be among them
	Faults     map[string]int  `json:"faults"`
	Writes     int             `json:"writes"` // that were acknowledged
	LongestGap time.Duration   `json:"longestGap"`
	Answered   time.Duration   `json:"answered"`   // the longest that it took after a round until all calls were
	Clean      time.Duration   `json:"clean"`      // and until status and check were clean
	Broken     []broken        `json:"broken"`     // at most tells of a kind in a row
	Untold     int             `json:"untold"`     // the others
	Properties map[string]bool `json:"properties"` // whether each held
}

// broken is a property that did not hold.
type broken struct {
	Property string    `json:"property"`
	At       time.Time `json:"at"`
	Round    int       `json:"round"`
	What     string    `json:"what"`
}

// The properties, as docs/how-to/development.md has them.
const (
	onlyAllowed = "no call reaches an app that no rule allows"
	noneTwice   = "no call runs more often than the rule says"
	kept        = "no acknowledged write is lost"
	trulySaid   = "every refusal is a stated one, and true"
	allGreen    = "when faults end, calls are answered within 30 s, and status and check are clean within 90 s"
	comesBack   = "memory, descriptors and goroutines come back"
)

// TestTorture makes faults by chance under calls, and asks what the simulation is asked, of real
// processes. The seed decides the faults: their kinds, when they begin and how long they last.
func TestTorture(t *testing.T) {
	if *tortureLasts == 0 {
		t.Skip("runs by hand: make torture HOURS=1")
	}
	if *tortureSeed == 0 {
		*tortureSeed = rand.Uint64N(1_000_000) + 1
	}
	var reports []ordealReport
	names := strings.Split(*tortureStores, ",")
	for _, store := range names {
		t.Run(store, func(t *testing.T) {
			o := newOrdeal(t, store, *tortureSeed)
			defer func() { reports = append(reports, o.ordealReport) }()
			o.endure(*tortureLasts / time.Duration(len(names)))
		})
	}
	for _, r := range reports {
		fmt.Print(r.text())
	}
	if text, err := json.MarshalIndent(reports, "", "  "); *tortureReport != "" {
		if err == nil {
			err = os.WriteFile(*tortureReport, append(text, '\n'), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func newOrdeal(t *testing.T, store string, number uint64) *ordeal {
	t.Helper()
	of, ok := stores[store]
	if !ok {
		t.Fatalf("no store %q, want some of %v", store, slices.Sorted(maps.Keys(stores)))
	}
	west := plan{name: "west", store: store}
	if of.shared {
		west.replicas = 2
	}
	o := &ordeal{lab: newLab(t, west, plan{name: "east"}, plan{name: "north"}), t: t, struck: map[string][]span{}, watch: stalls.Begin(t), ordealReport: ordealReport{
		Store: store, Seed: number, Refused: map[string]int{}, Faults: map[string]int{}, Properties: map[string]bool{},
	}}
	for _, p := range []string{onlyAllowed, noneTwice, kept, trulySaid, allGreen, comesBack} {
		o.Properties[p] = true
	}
	o.registers = o.objects()
	for _, r := range o.registers {
		if err := r.set(r.usual); err != nil {
			t.Fatal(err)
		}
	}
	o.west.apply(t, usual("checkout"), selection("billing", "stock: local"), export("stock"))
	o.east.apply(t, selection("orders", "stock: west north"))
	o.north.apply(t, export("stock"))
	o.run(t, has{o.west, "checkout", 1}, has{o.west, "cart", 1}, has{o.west, "billing", 1}, has{o.west, "stock", 2},
		has{o.east, "orders", 2}, has{o.north, "orders", 1}, has{o.north, "stock", 1})
	var all []*caller // but the one that never may
	for _, c := range []struct {
		in       *cluster
		name, to string
	}{{o.west, "checkout 1", "orders"}, {o.west, "cart 1", "orders"}, {o.west, "checkout 1", "stock"}, {o.east, "orders 1", "stock"}, {o.west, "billing 1", "orders"}} {
		made := &ordealCaller{caller: calling(c.in.sidecars[c.name], c.to), in: c.in, never: c.name == "billing 1"}
		if o.callers = append(o.callers, made); !made.never {
			all = append(all, made.caller)
		}
	}
	o.blows = o.allBlows()
	startLoad(t, "torture-"+store, 5*deadline, all...)
	o.quiet(settled)
	o.look() // calls before the first fault are held to the same
	return o
}

// endure makes rounds of faults for so long, and at least one.
func (o *ordeal) endure(lasts time.Duration) {
	begun := time.Now()
	for ; o.Rounds == 0 || time.Since(begun) < lasts; o.Rounds++ {
		o.began = time.Now()
		planned := o.planned(o.Rounds)
		o.strike(planned)
		o.quiet(0)
		o.look()
		o.use()
		o.Lasted = time.Since(begun)
		o.t.Logf("%s, seed %d, round %d, %s of %s: %d faults, %d calls, refused %v, %d broken",
			o.Store, o.Seed, o.Rounds, o.Lasted.Round(time.Second), lasts, len(planned), o.Calls, o.Refused, len(o.Broken))
	}
}

// breaks notes that a property did not hold.
func (o *ordeal) breaks(property string, at time.Time, format string, args ...any) {
	o.t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	alike := func(b broken) bool { return b.Property == property && b.Round == o.Rounds }
	if o.Properties[property] = false; len(o.Broken) >= tells && slices.IndexFunc(o.Broken[len(o.Broken)-tells:], func(b broken) bool { return !alike(b) }) < 0 {
		o.Untold++
		return
	}
	b := broken{property, at, o.Rounds, fmt.Sprintf(format, args...)}
	if still := o.watch.Longest(o.began); still > decisive/2 {
		b.What += fmt.Sprintf("; in this round the machine stood still for %s", round(still))
	}
	o.Broken = append(o.Broken, b)
	o.t.Errorf("%s, seed %d, round %d, at %s: %s does not hold: %s", o.Store, o.Seed, b.Round, at.Format("15:04:05.000"), property, b.What)
}

// text is the report for people.
func (r *ordealReport) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s, SEED=%d: %d rounds in %s; %d calls, longest without an answer %s; %d writes; after a round, calls were answered within %s, and status and check clean within %s\n",
		r.Store, r.Seed, r.Rounds, r.Lasted.Round(time.Second), r.Calls, round(r.LongestGap), r.Writes, round(r.Answered), round(r.Clean))
	for _, counts := range []map[string]int{r.Faults, r.Refused} {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(&text, "  %6d × %s\n", counts[name], name)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(r.Properties)) {
		fmt.Fprintf(&text, "  %s: %s\n", map[bool]string{true: "held", false: "BROKEN"}[r.Properties[p]], p)
	}
	for _, b := range r.Broken {
		fmt.Fprintf(&text, "    round %d, %s: %s\n", b.Round, b.At.Format("15:04:05.000"), b.What)
	}
	if r.Untold > 0 {
		fmt.Fprintf(&text, "    and %d more like these\n", r.Untold)
	}
	return text.String()
}

// planned are the faults of a round. They follow from the seed, the store and the number of the round.
func (o *ordeal) planned(round int) (all []planned) {
	store := fnv.New64()
	store.Write([]byte(o.Store))
	random := rand.New(rand.NewPCG(o.Seed, store.Sum64()+uint64(round)))
	for begins := time.Duration(0); begins < striking; begins += time.Duration(1+random.IntN(6000)) * time.Millisecond {
		class := o.blows[random.IntN(len(o.blows))]
		p := planned{class[random.IntN(len(class))], begins, begins + time.Duration(500+random.IntN(12_000))*time.Millisecond}
		during := slices.DeleteFunc(slices.Clone(all), func(other planned) bool { return other.ends+restarts < p.begins })
		if len(during) < atATime && !slices.ContainsFunc(during, func(other planned) bool { return other.on == p.on }) {
			all = append(all, p)
		}
	}
	return all
}

// strike makes the faults of a round, each at its time, and returns when all are mended.
func (o *ordeal) strike(all []planned) {
	begun := time.Now()
	var under sync.WaitGroup
	for _, p := range all {
		under.Go(func() {
			time.Sleep(time.Until(begun.Add(p.begins)))
			from := time.Now()
			mend, err := p.strike()
			if err == nil {
				time.Sleep(time.Until(begun.Add(p.ends)))
				err = mend()
			}
			o.mu.Lock()
			o.Faults[p.name]++
			was := span{from, time.Now()}
			if o.struck[p.on] = append(o.struck[p.on], was); p.between {
				o.spent = append(o.spent, was)
			}
			o.t.Logf("%s to %s: %s", was.from.Format("15:04:05.000"), was.to.Format("15:04:05.000"), p.name)
			o.mu.Unlock()
			if err != nil {
				o.t.Errorf("%s: %v", p.name, err)
			}
		})
	}
	stranger := startLoad(o.t, fmt.Sprintf("stranger-%s-%d", o.Store, o.Rounds), 5*deadline, o.callers[len(o.callers)-1].caller)
	time.Sleep(trying)
	stranger.end()
	under.Wait()
	o.Heal()
}

// sidecarsOf are a cluster's sidecars by name, which is the same order each time.
func (c *cluster) sidecarsByName() (all []*sandbox.Sidecar) {
	for _, name := range slices.Sorted(maps.Keys(c.sidecars)) {
		all = append(all, c.sidecars[name])
	}
	return all
}
