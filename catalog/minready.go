package catalog

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// MinReady is how many instances of a route must be ready for it to take all calls that are due to
// it: a number or, if negative, a percentage of the instances that are known. 0 asks for none.
type MinReady int32

// MaxMinReady bounds the number of instances.
const MaxMinReady = 100_000

var errMinReady = fmt.Errorf("is neither a number of instances from 1 to %d nor a percentage from 1%% to 100%%", MaxMinReady)

// ParseMinReady reads a number of instances, such as "3", or a percentage, such as "50%". Empty is 0.
func ParseMinReady(text string) (MinReady, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.ParseUint(digits, 10, 32)
	switch {
	case text == "":
		return 0, nil
	case err != nil || n == 0 || digits[0] == '0' || n > MaxMinReady || percent && n > 100:
		return 0, errMinReady
	case percent:
		return -MinReady(n), nil
	}
	return MinReady(n), nil
}

// String is the value as objects write it; empty for 0.
func (m MinReady) String() string {
	switch {
	case m == 0:
		return ""
	case m < 0:
		return strconv.Itoa(int(-m)) + "%"
	}
	return strconv.Itoa(int(m))
}

// Capacity is how much of its due calls a route can carry, out of 1, with so many instances ready of
// those that are known. It is more than 0: whoever asks has one that takes calls.
func (m MinReady) Capacity(ready float64, known uint32) float64 {
	if m == 0 {
		return 1
	}
	need := float64(m)
	if m < 0 {
		need = math.Ceil(float64(known) * float64(-m) / 100)
	}
	return min(1, max(ready, leastReady)/max(1, need))
}

// leastReady stands for an instance that hardly takes calls.
const leastReady = 0.01
