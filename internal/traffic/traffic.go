// Package traffic has what counts calls: how they end, how long they take, and how counts travel
// from the sidecars that make them to the service. Counts are merged by addition.
package traffic

import (
	"fmt"
	"math"
	"math/bits"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
)

// End is how a call ended for its caller. Numbers stand in messages, so they stay as they are.
type End uint8

// The ends of calls.
const (
	OK          End = iota
	ClientError     // the app says that the request is at fault: HTTP 4xx, or gRPC such as NotFound
	Late            // a good answer after [SlowAfter]
	AppError        // the app fails: HTTP 5xx, or gRPC such as Internal
	Refused         // by the callee's guard, by Dapr's access control, or for want of trust
	Unreached       // no connection, or none that takes calls
	CutOff          // the connection ended before the answer
	TimedOut        // the caller's deadline came within a second
	GivenUp         // there was no answer for a second or more, and the caller stopped waiting
	Cancelled       // the caller stopped waiting within a second
	Ends        = iota
)

var endNames = [Ends]string{"ok", "client error", "late", "app error", "refused", "not reached", "cut off", "timed out", "given up", "cancelled"}

// String is the end as tables and metrics have it.
func (e End) String() string { return endNames[e] }

// Good tells whether the callee did its part.
func (e End) Good() bool { return e <= Late }

// Counted tells whether the end says anything about the callee.
func (e End) Counted() bool { return e != Cancelled }

// OfCode is the end of a call with a status that came in time.
func OfCode(code codes.Code) End {
	switch code {
	case codes.OK:
		return OK
	case codes.Canceled:
		return Cancelled
	case codes.Unavailable:
		return CutOff
	case codes.DeadlineExceeded:
		return TimedOut
	case codes.PermissionDenied, codes.Unauthenticated:
		return Refused
	case codes.Internal, codes.Unknown, codes.Unimplemented, codes.ResourceExhausted, codes.DataLoss:
		return AppError
	}
	return ClientError
}

// OfHTTP is the end of a call that an HTTP app answered in time; status is 0 for any other app.
func OfHTTP(status int32) End {
	switch {
	case status >= http.StatusInternalServerError:
		return AppError
	case status >= http.StatusBadRequest:
		return ClientError
	}
	return OK
}

// SlowAfter is how late an answer counts as late.
const SlowAfter = 5 * time.Second

// GivenUpAfter is how long a call must have waited for its caller's giving it up to speak against
// the callee.
const GivenUpAfter = time.Second

// Schema is that of Prometheus' native histograms with these buckets of latency, and the scale of
// OpenTelemetry's: in each there are perDouble buckets until it has doubled. So the latency that a
// bucket stands for differs by at most 9 % from each in it.
const (
	Schema    = 2
	perDouble = 1 << Schema
	// Buckets of latency. The first has all up to some 2^-20 s, the last all from 4.5 hours on.
	Buckets = 34 * perDouble
	// lowest is 2 to the power of which seconds the first bucket begins at.
	lowest = -20
)

// bucketOf is the bucket of a latency.
func bucketOf(d time.Duration) int {
	d = min(max(0, d), 4*time.Hour)
	units := max(1, uint64(d)<<-lowest/uint64(time.Second))
	exponent := bits.Len64(units) - 1
	mantissa := units << (63 - exponent) >> 47 // 1 to 2, times 1<<16
	i := exponent * perDouble
	for _, step := range [...]uint64{77936, 92682, 110218} { // 2^(1/4), 2^(2/4), 2^(3/4), times 1<<16
		if mantissa >= step {
			i++
		}
	}
	return i
}

// Native is the number of a bucket in a native histogram of seconds.
func Native(bucket int) int { return bucket + 1 + lowest*perDouble }

// Upper is the latency that all of a bucket are below.
func Upper(bucket int) time.Duration { return at(float64(bucket + 1)) }

// middle is the latency that a bucket stands for.
func middle(bucket int) time.Duration { return at(float64(bucket) + 0.5) }

func at(bucket float64) time.Duration {
	return time.Duration(math.Exp2(lowest+bucket/perDouble) * float64(time.Second))
}

// Counter counts calls as they end. Its methods may be called from any goroutine.
type Counter struct {
	ends    [Ends]atomic.Uint64
	buckets [Buckets]atomic.Uint64
	micros  atomic.Uint64
	retries atomic.Uint64
	traced  [Ends]atomic.Pointer[Exemplar]
}

// Add counts a call that ended after a time.
func (c *Counter) Add(end End, took time.Duration) {
	c.ends[end].Add(1)
	c.buckets[bucketOf(took)].Add(1)
	c.micros.Add(uint64(max(0, took.Microseconds())))
}

// Retry counts an attempt beyond the first of a call.
func (c *Counter) Retry() { c.retries.Add(1) }

// Read returns the counts so far.
func (c *Counter) Read() (all Counts) {
	for i := range c.ends {
		all.Ends[i] = c.ends[i].Load()
	}
	for i := range c.buckets {
		all.Buckets[i] = c.buckets[i].Load()
	}
	all.Micros, all.Retries = c.micros.Load(), c.retries.Load()
	return all
}

// Counts are calls by their ends and latencies. The zero value has none.
type Counts struct {
	Ends    [Ends]uint64
	Buckets [Buckets]uint64
	Micros  uint64 // of all together
	Retries uint64
}

// Since returns the counts since an earlier reading.
func (c *Counts) Since(before *Counts) Counts {
	d := *c
	for i := range d.Ends {
		d.Ends[i] -= before.Ends[i]
	}
	for i := range d.Buckets {
		d.Buckets[i] -= before.Buckets[i]
	}
	d.Micros, d.Retries = d.Micros-before.Micros, d.Retries-before.Retries
	return d
}

// Add adds others.
func (c *Counts) Add(o *Counts) {
	for i := range c.Ends {
		c.Ends[i] += o.Ends[i]
	}
	for i := range c.Buckets {
		c.Buckets[i] += o.Buckets[i]
	}
	c.Micros, c.Retries = c.Micros+o.Micros, c.Retries+o.Retries
}

// Calls is how many ended in a way that says something about the callee.
func (c *Counts) Calls() (n uint64) {
	for end, k := range c.Ends {
		if End(end).Counted() {
			n += k
		}
	}
	return n
}

// Good is how many of [Counts.Calls] ended well.
func (c *Counts) Good() (n uint64) {
	for end, k := range c.Ends {
		if End(end).Good() {
			n += k
		}
	}
	return n
}

// All is how many ended.
func (c *Counts) All() uint64 { return c.Calls() + c.Ends[Cancelled] }

// Quantile is the latency that a part of the calls, 0 to 1, took at most; 0 if there are none.
func (c *Counts) Quantile(part float64) time.Duration {
	var all uint64
	for _, n := range c.Buckets {
		all += n
	}
	if all == 0 {
		return 0
	}
	rank := uint64(math.Ceil(part * float64(all)))
	for i, n := range c.Buckets {
		if rank <= n {
			return middle(i)
		}
		rank -= n
	}
	return middle(Buckets - 1)
}

// Wire is the message of counts; nil if there are none.
func (c *Counts) Wire() *v1alpha1.CallTraffic {
	first, last := -1, 0
	for i, n := range c.Buckets {
		if n > 0 {
			if first < 0 {
				first = i
			}
			last = i + 1
		}
	}
	ends := Ends
	for ends > 0 && c.Ends[ends-1] == 0 {
		ends--
	}
	if ends == 0 && first < 0 && c.Retries == 0 {
		return nil
	}
	m := &v1alpha1.CallTraffic{Ends: c.Ends[:ends:ends], Micros: c.Micros, Retries: c.Retries}
	if first >= 0 {
		m.FirstBucket, m.Buckets = uint32(first), c.Buckets[first:last:last]
	}
	return m
}

// mostTold is how much of anything one message counts at most. More is no number of calls, and sums of
// such would begin anew.
const mostTold = 1 << 40

// Told is a number that a sidecar tells, as far as it can be one.
func Told(n uint64) uint64 { return min(n, mostTold) }

// FromWire reads counts.
func FromWire(m *v1alpha1.CallTraffic) (c Counts, err error) {
	if len(m.GetEnds()) > Ends || uint64(m.GetFirstBucket())+uint64(len(m.GetBuckets())) > Buckets {
		return c, fmt.Errorf("%d ends and %d buckets from %d on; there are %d and %d", len(m.GetEnds()), len(m.GetBuckets()), m.GetFirstBucket(), Ends, Buckets)
	}
	for i, n := range m.GetEnds() {
		c.Ends[i] = Told(n)
	}
	for i, n := range m.GetBuckets() {
		c.Buckets[int(m.GetFirstBucket())+i] = Told(n)
	}
	c.Micros, c.Retries = min(m.GetMicros(), mostTold<<10), Told(m.GetRetries())
	return c, nil
}

// SumUp sets what follows from counts over a time: rate, success and latencies.
func (c *Counts) SumUp(m *v1alpha1.TrafficEdge, over time.Duration) {
	calls := c.Calls()
	m.CallsPerSecond, m.Success = 0, nil
	if over > 0 {
		m.CallsPerSecond = float64(calls) / over.Seconds()
	}
	if calls > 0 {
		success := float64(c.Good()) / float64(calls)
		m.Success = &success
	}
	ms := func(part float64) float64 { return float64(c.Quantile(part).Microseconds()) / 1000 }
	m.P50Ms, m.P95Ms, m.P99Ms = ms(.5), ms(.95), ms(.99)
}
