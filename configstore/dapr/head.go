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
// A star stands for more keys than there is room for. Any other text says that somebody
// has changed things by hand: everything is to be read again.
type head struct {
	batches []batch // newest first, never more than one with the same revision
}

// batch is what was written together.
type batch struct {
	revision uint64
	nonce    string   // 16 hexadecimal digits
	paths    []string // without api.KeyPrefix; nil when they were too many
}

const (
	headLimit = 3500
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
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if lines[0] != headMagic || len(lines) < 2 || len(text) > 2*headLimit {
		return head{}, false
	}
	for i, line := range lines[1:] {
		fields := strings.Split(line, " ")
		if len(fields) < 3 || len(fields[1]) != nonceLen {
			return head{}, false
		}
		revision, err := strconv.ParseUint(fields[0], 10, 63)
		if err != nil || i > 0 && revision >= h.batches[i-1].revision {
			return head{}, false
		}
		b := batch{revision: revision, nonce: fields[1], paths: fields[2:]}
		if b.paths[0] == "*" {
			b.paths = nil
		}
		h.batches = append(h.batches, b)
	}
	return h, true
}

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

// next is the head after one more batch.
func (h head) next(nonce string, paths []string) head {
	b := batch{revision: h.revision() + 1, nonce: nonce}
	length := 0
	for _, path := range paths {
		b.paths = append(b.paths, strings.TrimPrefix(path, api.KeyPrefix))
		length += len(path)
	}
	if length > headLimit {
		b.paths = nil
	}
	return head{append([]batch{b}, h.batches...)}
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
	if len(was.batches) == 0 {
		return nil, false
	}
	for _, b := range h.batches {
		if b.nonce == was.batches[0].nonce && b.revision == was.batches[0].revision {
			return paths, true
		}
		if b.paths == nil {
			return nil, false
		}
		for _, path := range b.paths {
			paths = append(paths, api.KeyPrefix+path)
		}
	}
	return nil, false
}

// emptyVersion is the version of a store that holds nothing at all, not even a head.
const emptyVersion configstore.Version = "empty"

// versionOf is a version for readers: of a state in which objects, or a head, were there.
func versionOf(text string, objects int) configstore.Version {
	h, ok := parseHead(text)
	switch {
	case ok:
		return configstore.Version(fmt.Sprintf("%d-%s", h.revision(), h.batches[0].nonce))
	case text == "" && objects == 0:
		return emptyVersion
	}
	return "unmarked"
}
