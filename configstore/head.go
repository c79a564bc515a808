package configstore

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/isthmus-mesh/isthmus/api"
)

// Head is the text of a key that a store rewrites with each batch of writes, in the same
// transaction. It names the keys that the last batches wrote, so a reader that sees a new head
// reads just those. Stores need it whose server does not report changes reliably.
//
//	isthmus/1
//	= [{"metadata":{"name":"east"},"spec":{}},null]
//	41 0011223344556677 Cluster/east AppExport/shop/orders
//	40 8899aabbccddeeff *
//
// The newest batch comes first. A star stands for more keys than there is room for. A line that
// begins with "=" has the values of the batch below it, null for a deleted key. A person who
// changes an object by hand appends a plus and its key: "+Cluster/east". The next batch takes those
// keys over. Any other text means that readers read everything again.
//
// The store in Consul wrote JSON before; [ParseHead] reads that too. A program of that time reads
// everything when it finds this text, and writes JSON again. So programs of both kinds can share a
// store.
type Head struct {
	Batches  []Batch  // newest first, each with a lower revision than the one before
	Appended []string // paths that people appended, in their order
}

// Batch is the keys that were written together.
type Batch struct {
	Revision uint64
	Nonce    string   // tells it from another batch of that revision, in a restored store
	Paths    []string // with api.KeyPrefix; nil when there were too many
	Values   [][]byte // of Paths, nil for a deleted one; no values at all when left out
}

const (
	headMagic   = "isthmus/1"
	valuesMark  = "="
	appendMark  = '+'
	tooMany     = "*"
	nonceLength = 16       // hexadecimal digits
	longestHead = 64 << 10 // bytes that are read
	headValues  = 4 << 10  // bytes of values that are written: of some ten objects
)

// NewNonce is a nonce for a Batch.
func NewNonce() string {
	var b [nonceLength / 2]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}

// ParseHead reads a head; ok is false for a text that is none. A server that numbers its writes
// gives the newest batch its number in at, which the writer could not know. For other servers at
// is 0.
func ParseHead(text string, at uint64) (h Head, ok bool) {
	if len(text) > longestHead {
		return Head{}, false
	}
	batches, appended, found := cutAppended(text)
	separates := func(r rune) bool { return r == appendMark || unicode.IsSpace(r) }
	for key := range strings.FieldsFuncSeq(appended, separates) {
		h.Appended = append(h.Appended, api.KeyPrefix+key)
	}
	batches = strings.TrimSpace(batches)
	switch {
	case found && batches == "":
		return h, true
	case at > 0 && strings.HasPrefix(text, "{"):
		h.Batches, ok = parseJSON(text)
	default:
		h.Batches, ok = parseBatches(batches)
	}
	if ok && at > 0 {
		h.Batches[0].Revision = at
	}
	for i := 1; ok && i < len(h.Batches); i++ {
		ok = h.Batches[i].Revision < h.Batches[i-1].Revision
	}
	if !ok {
		return Head{Appended: h.Appended}, false
	}
	return h, true
}

// cutAppended divides a text where people began to append to it. A value may have a plus in it.
func cutAppended(text string) (batches, appended string, found bool) {
	at := 0
	for line := range strings.Lines(text) {
		if i := strings.IndexRune(line, appendMark); i >= 0 && !strings.HasPrefix(line, valuesMark) {
			return text[:at+i], text[at+i+1:], true
		}
		at += len(line)
	}
	return text, "", false
}

func parseBatches(text string) (batches []Batch, ok bool) {
	lines := strings.Split(text, "\n")
	if lines[0] != headMagic {
		return nil, false
	}
	var values []json.RawMessage
	for _, line := range lines[1:] {
		if list, is := strings.CutPrefix(line, valuesMark); is {
			if json.Unmarshal([]byte(list), &values) != nil {
				values = nil
			}
			continue
		}
		fields := strings.Split(line, " ")
		if len(fields) < 3 || len(fields[1]) != nonceLength || slices.Contains(fields, "") {
			return nil, false
		}
		revision, err := strconv.ParseUint(fields[0], 10, 63)
		if err != nil {
			return nil, false
		}
		b := newBatch(revision, fields[1], fields[2:], values)
		if fields[2] == tooMany {
			b.Paths, b.Values = nil, nil
		}
		batches, values = append(batches, b), nil
	}
	return batches, len(batches) > 0
}

// newBatch is a batch as it was read, its keys without api.KeyPrefix.
func newBatch(revision uint64, nonce string, keys []string, values []json.RawMessage) Batch {
	b := Batch{Revision: revision, Nonce: nonce, Paths: make([]string, len(keys))}
	for i, key := range keys {
		b.Paths[i] = api.KeyPrefix + key
	}
	if len(values) != len(keys) {
		return b
	}
	b.Values = make([][]byte, len(values))
	for i, value := range values {
		if string(value) != "null" {
			b.Values[i] = value
		}
	}
	return b
}

// parseJSON reads what the store in Consul wrote before: the oldest batch first, and no revision
// of the newest.
func parseJSON(text string) (batches []Batch, ok bool) {
	var from struct {
		Steps []struct {
			ID     string
			Index  uint64
			Keys   []string
			Values []json.RawMessage
		}
	}
	if json.Unmarshal([]byte(text), &from) != nil {
		return nil, false
	}
	for _, s := range slices.Backward(from.Steps) {
		foreign := strings.ContainsAny(s.ID+strings.Join(s.Keys, ""), " \n*+") || slices.Contains(s.Keys, "")
		if len(s.ID) != nonceLength || len(s.Keys) == 0 || foreign {
			return nil, false
		}
		batches = append(batches, newBatch(s.Index, s.ID, s.Keys, s.Values))
	}
	return batches, len(batches) > 0
}

// Text is the head as it is written. It has at most so many bytes, and the newest values besides.
func (h Head) Text(most int) string {
	var b strings.Builder
	b.WriteString(headMagic)
	length, values := b.Len(), 0
	for i, batch := range h.Batches {
		line := batch.line()
		if length+len(line) > most {
			if i > 0 {
				break
			}
			batch.Paths, batch.Values = nil, nil
			line = batch.line()
		}
		for _, value := range batch.Values {
			values += len(value)
		}
		if values <= headValues {
			b.WriteString(batch.valuesLine())
		}
		b.WriteString(line)
		length += len(line)
	}
	return b.String()
}

func (b Batch) line() string {
	keys := tooMany
	if b.Paths != nil {
		keys = strings.TrimPrefix(strings.Join(b.Paths, " "), api.KeyPrefix)
		keys = strings.ReplaceAll(keys, " "+api.KeyPrefix, " ")
	}
	return fmt.Sprintf("\n%d %s %s", b.Revision, b.Nonce, keys)
}

func (b Batch) valuesLine() string {
	if b.Values == nil {
		return ""
	}
	values := make([]json.RawMessage, len(b.Values))
	for i, value := range b.Values {
		values[i] = value
	}
	list, err := json.Marshal(values)
	if err != nil {
		return "" // a reader gets the values by their keys
	}
	return "\n" + valuesMark + " " + string(list)
}

// Next is the head after one more batch. One of no paths stands for everything. The values are
// those of the paths, nil for a deleted one, or none where readers are to get them by their keys.
// Its revision is 1 after a head that could not be read.
func (h Head) Next(paths []string, values [][]byte) Head {
	b := Batch{Revision: h.Revision() + 1, Nonce: NewNonce(), Values: values}
	if len(paths) > 0 {
		b.Paths = slices.Concat(paths, h.Appended)
	}
	if len(b.Paths) != len(values) {
		b.Values = nil
	}
	return Head{Batches: append([]Batch{b}, h.Batches...)}
}

// Revision is that of the newest batch.
func (h Head) Revision() uint64 {
	if len(h.Batches) == 0 {
		return 0
	}
	return h.Batches[0].Revision
}

// Knows tells whether a batch is among the last.
func (h Head) Knows(nonce string) bool {
	return slices.ContainsFunc(h.Batches, func(b Batch) bool { return b.Nonce == nonce })
}

// Since is the batches after another head. ok is false when that can't be told: there were too
// many, or this is another store.
func (h Head) Since(was Head) (batches []Batch, ok bool) {
	if len(was.Batches) == 0 {
		return nil, len(h.Batches) == 0
	}
	last := was.Batches[0]
	i := slices.IndexFunc(h.Batches, func(b Batch) bool { return b.Revision == last.Revision && b.Nonce == last.Nonce })
	if i < 0 {
		return nil, false
	}
	return h.Batches[:i], true
}

// PathsSince is the paths that batches and people wrote after another head, in order. ok is false
// when that can't be told.
func (h Head) PathsSince(was Head) (paths []string, ok bool) {
	batches, ok := h.Since(was)
	if !ok {
		return nil, false
	}
	for _, b := range batches {
		if b.Paths == nil {
			return nil, false
		}
		paths = append(paths, b.Paths...)
	}
	appended := h.Appended
	if n := len(was.Appended); len(batches) == 0 { // else a batch took over what was appended before
		if len(appended) < n || !slices.Equal(appended[:n], was.Appended) {
			return nil, false
		}
		appended = appended[n:]
	}
	paths = append(paths, appended...)
	slices.Sort(paths)
	return slices.Compact(paths), true
}
