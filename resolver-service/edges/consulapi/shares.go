package consulapi

import "github.com/isthmus-mesh/isthmus/catalog"

const (
	// tolerance is how far the share of a route may be from what it should be.
	tolerance = 0.005
	// mostCopies is how often an address stands in an answer at most, while that is enough.
	mostCopies = 64
	// crowd is how many entries share out what takes more than that.
	crowd     = 200
	mostCrowd = 4000
)

// apportion returns how often each address of each route stands in an answer, so that a
// client that chooses evenly among all of them keeps to the shares. All addresses of a route
// stand equally often, unless that would take too many.
func apportion(shares []catalog.Share) [][]int {
	if copies, ok := few(shares); ok {
		all := make([][]int, len(shares))
		for n, s := range shares {
			all[n] = evenly(copies[n], len(s.Route.Addresses))
		}
		return all
	}
	return spread(shares)
}

// evenly is so many copies of each of n addresses.
func evenly(copies, n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = copies
	}
	return all
}

// few finds the fewest copies for the addresses of each route that keep to the shares.
func few(shares []catalog.Share) (copies []int, ok bool) {
	each := make([]float64, len(shares)) // of one address
	largest := 0.0
	for n, s := range shares {
		each[n] = s.Part / float64(max(1, len(s.Route.Addresses)))
		largest = max(largest, each[n])
	}
	copies = make([]int, len(shares))
	for most := 1; most <= mostCopies; most++ {
		total := 0.0
		for n, s := range shares {
			copies[n] = int(each[n]/largest*float64(most) + 0.5)
			total += float64(copies[n] * len(s.Route.Addresses))
		}
		if within(shares, copies, total) {
			return copies, true
		}
	}
	return nil, false
}

func within(shares []catalog.Share, copies []int, total float64) bool {
	for n, s := range shares {
		got := float64(copies[n]*len(s.Route.Addresses)) / total
		if got > s.Part+tolerance || got < s.Part-tolerance {
			return false
		}
	}
	return true
}

// spread gives each route its share of a number of entries, and its addresses turns of it.
func spread(shares []catalog.Share) [][]int {
	addresses := 0
	for _, s := range shares {
		addresses += len(s.Route.Addresses)
	}
	total := float64(min(max(crowd, 2*addresses), mostCrowd))
	all := make([][]int, len(shares))
	for n, s := range shares {
		count := len(s.Route.Addresses)
		all[n] = make([]int, count)
		for i := range max(1, int(total*s.Part+0.5)) {
			if count > 0 {
				all[n][i%count]++
			}
		}
	}
	return all
}
