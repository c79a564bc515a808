package dapr

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/isthmus-mesh/isthmus/api"
	"github.com/isthmus-mesh/isthmus/configstore"
)

// head is the text of the key that is rewritten with every batch, in the same
// transaction: what the last batches have touched, newest first. A reader that is told of
// a new head reads just that. It is no longer than headLimit, whatever happens: a NOTIFY
// of PostgreSQL carries 8,000 bytes.
//
//	isthmus/1
//	41 0011223344556677 Cluster/east AppExport/shop/orders
//	40 8899aabbccddeeff *
//
// A star stands for more keys than there is room for. Who changes an object by hand
// appends a plus and its key, without isthmus/v1alpha1/: "+Cluster/east". The next batch
// takes those over. Any other text says that everything is to be read again.
type head struct {
	batches []batch  // newest first, never more than one with the same revision
	hand    []string // paths, in the order in which they were appended
}

// batch is what was written together.
type batch struct {
	revision uint64
	nonce    string   // 16 hexadecimal digits
	paths    []string // without api.KeyPrefix; nil when they were too many
}

const (
	headLimit = 3500
	handLimit = 64 << 10 // of a text with what was appended
	handMark  = "+"
	headMagic = "isthmus/1"
	nonceLen  = 16
)

func newNonce() string {
	var b [nonceLen / 2]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}

// parseHead reads a head. ok is false for what is none.
func parseHead(text string) (h head, ok bool) {
	if len(text) > handLimit {
		return head{}, false
	}
	base, appended, byHand := strings.Cut(text, handMark)
	if byHand {
		for path := range strings.SplitSeq(appended, handMark) {
			h.hand = append(h.hand, api.KeyPrefix+strings.TrimSpace(path))
		}
		if strings.TrimSpace(base) == "" {
			return h, true
		}
	}
	h.batches, ok = parseBatches(strings.TrimSpace(base))
	return h, ok
}

func parseBatches(text string) (batches []batch, ok bool) {
	lines := strings.Split(text, "\n")
	if lines[0] != headMagic || len(lines) < 2 || len(text) > 2*headLimit {
		return nil, false
	}
	for i, line := range lines[1:] {
		fields := strings.Split(line, " ")
		if len(fields) < 3 || len(fields[1]) != nonceLen {
			return nil, false
		}
		revision, err := strconv.ParseUint(fields[0], 10, 63)
		if err != nil || i > 0 && revision >= batches[i-1].revision {
			return nil, false
		}
		b := batch{revision: revision, nonce: fields[1], paths: fields[2:]}
		if b.paths[0] == "*" {
			b.paths = nil
		}
		batches = append(batches, b)
	}
	return batches, true
}

// text is the head as it is written: by Isthmus, and so with nothing appended.
func (h head) text() string {
	var b strings.Builder
	b.WriteString(headMagic)
	for i, batch := range h.batches {
		line := batch.text()
		if b.Len()+len(line) > headLimit {
			if i > 0 {
				break
			}
			line = batch.short()
		}
		b.WriteString(line)
	}
	return b.String()
}

func (b batch) text() string {
	if b.paths == nil {
		return b.short()
	}
	return fmt.Sprintf("\n%d %s %s", b.revision, b.nonce, strings.Join(b.paths, " "))
}

func (b batch) short() string { return fmt.Sprintf("\n%d %s *", b.revision, b.nonce) }

// next is the head after one more batch; one of no paths stands for everything. Its
// revision is 1 after a head that could not be read.
func (h head) next(nonce string, paths []string) head {
	b := batch{revision: h.revision() + 1, nonce: nonce}
	length := 0
	if len(paths) > 0 {
		paths = slices.Concat(paths, h.hand)
	}
	for _, path := range paths {
		b.paths = append(b.paths, strings.TrimPrefix(path, api.KeyPrefix))
		length += len(path)
	}
	if length > headLimit {
		b.paths = nil
	}
	return head{batches: append([]batch{b}, h.batches...)}
}

func (h head) revision() uint64 {
	if len(h.batches) == 0 {
		return 0
	}
	return h.batches[0].revision
}

// knows tells whether a batch is among the last.
func (h head) knows(nonce string) bool {
	return slices.ContainsFunc(h.batches, func(b batch) bool { return b.nonce == nonce })
}

// since is the paths that were touched after another head. ok is false when that can't be
// told: too much has happened, or this is another store.
func (h head) since(was head) (paths []string, ok bool) {
	for _, b := range h.batches {
		if len(was.batches) > 0 && b.nonce == was.batches[0].nonce && b.revision == was.batches[0].revision {
			return h.appendedSince(was, paths)
		}
		if b.paths == nil {
			return nil, false
		}
		for _, path := range b.paths {
			paths = append(paths, api.KeyPrefix+path)
		}
	}
	if len(h.batches)+len(was.batches) == 0 {
		return h.appendedSince(was, nil)
	}
	return nil, false
}

// appendedSince adds what was appended by hand. The batches since have taken over what was
// appended before them, whether the other head had it already or not.
func (h head) appendedSince(was head, paths []string) ([]string, bool) {
	if len(paths) > 0 {
		return append(paths, h.hand...), true
	}
	n := len(was.hand)
	if len(h.hand) < n || !slices.Equal(h.hand[:n], was.hand) {
		return nil, false
	}
	return h.hand[n:], true
}

// emptyVersion is the version of a store that holds nothing at all, not even a head.
const emptyVersion configstore.Version = "empty"

// versionOf is a version for readers: of a state in which objects, or a head, were there.
func versionOf(text string, objects int) configstore.Version {
	h, ok := parseHead(text)
	switch {
	case ok && len(h.batches) > 0:
		return configstore.Version(fmt.Sprintf("%d-%s", h.revision(), h.batches[0].nonce))
	case text == "" && objects == 0:
		return emptyVersion
	}
	return "unmarked"
}
