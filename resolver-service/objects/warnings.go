package objects

import (
	"fmt"

	"github.com/isthmus-mesh/isthmus/catalog"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// mostWarnings bounds the warnings of an answer.
const mostWarnings = 20

// warnings names the AppInstance objects that share an address with another, if at least one of
// the two is written. That is no error, because an address may be on its way from one app to
// another.
func (s *Server) warnings(writes []configstore.Write) (all []string) {
	written := map[catalog.Key]*catalog.AppInstance{}
	touched := map[catalog.Key]bool{}
	for _, w := range writes {
		touched[w.Key()] = true
		if i, ok := w.Object.(*catalog.AppInstance); ok {
			written[i.Key()] = i
		}
	}
	if len(written) == 0 {
		return nil
	}
	var placed []*catalog.AppInstance
	there, _ := s.feed.Instances().Load()
	for _, i := range there {
		if !touched[i.Key()] {
			placed = append(placed, i)
		}
	}
	for _, i := range written {
		placed = append(placed, i)
	}
	left := 0
	for _, d := range catalog.DuplicateAddresses(placed) {
		switch {
		case !touched[d.Instance.Key()] && !touched[d.First.Key()]:
		case len(all) == mostWarnings:
			left++
		default:
			all = append(all, d.String())
		}
	}
	if left > 0 {
		all = append(all, fmt.Sprintf("%d more AppInstance objects have an address that another has, too; isthmus status counts them, and with -v names the first hundred", left))
	}
	return all
}
