package traffic

import (
	"encoding/binary"
	"time"

	"github.com/isthmus-mesh/isthmus/internal/traffic"
)

// history is the calls of an edge over time. Most edges have few calls in a slot, of few latencies, so
// a slot is some ten bytes, and one without calls is none.
type history struct {
	short, long slots
	last        time.Time            // of the newest report
	named       bool                 // metrics name the edge, if there is room
	underWay    map[uint64]*underWay // by sidecar
}

type underWay struct {
	calls uint64
	at    time.Time
}

// staleUnderWay is how long a number of calls under way stands that nobody repeats.
const staleUnderWay = time.Hour

// slots are counts by slots of time, the oldest first: each as how many slots it comes after the one
// before, and the counts.
type slots struct {
	coarse bool // of latencies there are quantiles alone
	data   []byte
	dead   int   // bytes at the begin that are no slots any more
	first  int64 // the number of the slot that the first one counts from
	newest int64 // the number of the newest slot
	at     int   // where the newest begins
}

func slotOf(t time.Time, size time.Duration) int64 { return t.UnixNano() / int64(size) }

// add adds calls that ended just before now.
func (r *history) add(c *traffic.Counts, now time.Time) {
	if c.All()+c.Retries == 0 {
		return
	}
	r.last = now
	slot := slotOf(now, Short)
	if len(r.short.data) > r.short.dead && slotOf(now, long) > r.short.newest/(int64(long/Short)) {
		r.fold()
	}
	r.short.add(c, slot)
	r.short.drop(slot - int64(shortKept/Short))
	r.long.drop(slotOf(now, long) - int64(Kept/long))
}

// fold adds the newest five minutes of the short slots to the long ones.
func (r *history) fold() {
	const each = int64(long / Short)
	five := r.short.newest / each
	var sum traffic.Counts
	r.short.read(five*each, func(slot int64, c *traffic.Counts) { sum.Add(c) })
	r.long.add(&sum, five)
}

// read hands on the counts of each slot of a size from one moment to another.
func (r *history) read(from, to time.Time, size time.Duration, take func(at time.Time, c *traffic.Counts)) {
	const each = int64(long / Short)
	until, unfolded := slotOf(to, Short), slotOf(from, Short)
	if size == long {
		r.long.read(slotOf(from, long), func(slot int64, c *traffic.Counts) { take(time.Unix(0, slot*int64(long)), c) })
		unfolded = max(unfolded, r.short.newest/each*each)
	}
	r.short.read(unfolded, func(slot int64, c *traffic.Counts) {
		if slot < until {
			take(time.Unix(0, slot*int64(Short)), c)
		}
	})
}

func (r *history) setUnderWay(sidecar uint64, calls uint64, now time.Time) {
	if calls == 0 {
		delete(r.underWay, sidecar)
		return
	}
	if r.underWay == nil {
		r.underWay = map[uint64]*underWay{}
	}
	r.underWay[sidecar] = &underWay{calls, now}
	r.last = now
}

func (r *history) allUnderWay(now time.Time) (n uint64) {
	for sidecar, u := range r.underWay {
		if now.Sub(u.at) > staleUnderWay {
			delete(r.underWay, sidecar)
		}
		n += u.calls
	}
	return n
}

// add adds counts to a slot, which is the newest or a newer one.
func (s *slots) add(c *traffic.Counts, slot int64) {
	switch {
	case len(s.data) == s.dead:
		s.first, s.newest, s.at = slot, slot, len(s.data)
		s.append(0, c)
	case slot <= s.newest:
		var sum traffic.Counts
		_, after := nextSlot(s.data[s.at:], s.coarse, &sum)
		sum.Add(c)
		s.data = s.data[:s.at]
		s.append(after, &sum)
	default:
		s.at = len(s.data)
		s.append(slot-s.newest, c)
		s.newest = slot
	}
}

func (s *slots) append(after int64, c *traffic.Counts) {
	var buffer [2048]byte
	slot := appendCounts(binary.AppendUvarint(buffer[:0], uint64(after)), c, s.coarse)
	if need := len(s.data) + len(slot); need > cap(s.data) {
		s.data = append(make([]byte, 0, need+need/spare), s.data...)
	}
	s.data = append(s.data, slot...)
}

// spare is which part of a buffer may be of no use.
const spare = 20

// drop forgets slots before one.
func (s *slots) drop(before int64) {
	for s.dead < len(s.data) {
		size, after := nextSlot(s.data[s.dead:], s.coarse, nil)
		if s.first+after >= before {
			break
		}
		s.first += after
		s.dead += size
	}
	if s.dead > len(s.data)/spare {
		n := copy(s.data, s.data[s.dead:])
		s.data, s.at, s.dead = s.data[:n], s.at-s.dead, 0
	}
}

// read hands on the slots from one on.
func (s *slots) read(from int64, take func(slot int64, c *traffic.Counts)) {
	slot := s.first
	for data := s.data[s.dead:]; len(data) > 0; {
		var c traffic.Counts
		size, after := nextSlot(data, s.coarse, &c)
		if slot += after; slot >= from {
			take(slot, &c)
		}
		data = data[size:]
	}
}

// nextSlot reads the first slot: its size, how far it comes after the one before, and its counts.
func nextSlot(data []byte, coarse bool, c *traffic.Counts) (size int, after int64) {
	gap, n := binary.Uvarint(data)
	return n + readCounts(data[n:], c, coarse), int64(gap)
}

// Bits beside those of the ends: there are retries, and calls without a latency.
const (
	withRetries = traffic.Ends + iota
	withUntimed
)

// appendCounts encodes counts: a set of bits for the numbers that there are, and those, and then
// latencies: the first bucket, how many there are from there on, and their numbers. Of coarse ones it
// has the buckets of some quantiles instead.
func appendCounts(data []byte, c *traffic.Counts, coarse bool) []byte {
	numbers := append(c.Ends[:], c.Retries, c.All()-timed(c))
	var set uint64
	for i, n := range numbers {
		if n != 0 {
			set |= 1 << i
		}
	}
	data = binary.AppendUvarint(data, set)
	for _, n := range numbers {
		if n != 0 {
			data = binary.AppendUvarint(data, n)
		}
	}
	if coarse {
		return appendCoarse(data, c)
	}
	first, behind := len(c.Buckets), 0
	for i, n := range c.Buckets {
		if n > 0 {
			first, behind = min(first, i), i+1
		}
	}
	if behind == 0 {
		return append(data, 0, 0)
	}
	data = append(data, byte(first), byte(behind-first))
	for _, n := range c.Buckets[first:behind] {
		data = binary.AppendUvarint(data, n)
	}
	return data
}

// timed is how many calls have a latency.
func timed(c *traffic.Counts) (all uint64) {
	for _, n := range c.Buckets {
		all += n
	}
	return all
}

// readCounts adds what appendCounts has encoded to c, or to nothing, and returns its size.
func readCounts(data []byte, c *traffic.Counts, coarse bool) (size int) {
	if c == nil {
		c = &traffic.Counts{}
	}
	rest := data
	next := func() uint64 {
		n, k := binary.Uvarint(rest)
		rest = rest[k:]
		return n
	}
	set, withLatency := next(), uint64(0)
	for i := range withUntimed + 1 {
		if set&(1<<i) == 0 {
			continue
		}
		switch n := next(); i {
		case withRetries:
			c.Retries += n
		case withUntimed:
			withLatency -= n
		default:
			c.Ends[i] += n
			withLatency += n
		}
	}
	if coarse {
		return len(data) - len(readCoarse(rest, withLatency, c))
	}
	first, n := int(rest[0]), int(rest[1])
	rest = rest[2:]
	for i := range n {
		c.Buckets[first+i] += next()
	}
	return len(data) - len(rest)
}

// quantiles are those that coarse latencies have, in percent.
var quantiles = [...]uint64{10, 50, 75, 90, 95, 99, 100}

// appendCoarse encodes the buckets of quantiles, each as how far it is from the one before.
func appendCoarse(data []byte, c *traffic.Counts) []byte {
	all := timed(c)
	if all == 0 {
		return data
	}
	bucket, before, below := 0, 0, uint64(0)
	for _, percent := range quantiles {
		for rank := (all*percent + 99) / 100; below+c.Buckets[bucket] < rank; bucket++ {
			below += c.Buckets[bucket]
		}
		data = append(data, byte(bucket-before))
		before = bucket
	}
	return data
}

// readCoarse shares calls out among the buckets between quantiles.
func readCoarse(data []byte, all uint64, c *traffic.Counts) (rest []byte) {
	if all == 0 {
		return data
	}
	bucket, below := 0, uint64(0)
	for i, percent := range quantiles {
		rank, width := (all*percent+99)/100, int(data[i])
		if i == 0 || width == 0 {
			bucket, width = bucket+width, 1
		} else {
			bucket += width
		}
		for left := width; left > 0; left-- {
			n := (rank - below) / uint64(left)
			c.Buckets[bucket-left+1] += n
			below += n
		}
	}
	return data[len(quantiles):]
}
