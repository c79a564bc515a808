package catalog

import (
	"math/bits"
	"net/netip"
	"slices"
	"unsafe"
)

// Callers maps an address to the app whose instance is there, and which so is the caller. It is
// immutable; [Callers.With] shares all unchanged parts. A lookup takes no lock and allocates
// nothing. The zero Callers is empty.
type Callers struct {
	// Addresses that differ only in their last byte share a block, since instances mostly have the
	// addresses of a node's range. The app-id of a key is the other 3 or 15 bytes.
	blocks Table[*callerBlock]
	count  int
}

// callerBlock has the callers of up to 256 addresses. It is immutable.
type callerBlock struct {
	present [4]uint64 // a bit for each last byte
	callers []*Caller // by last byte; equal callers in one call of With share one value
}

// Caller is the app at an address.
type Caller struct {
	App App
	// Shared is set if several apps have instances at the address, as on a host network. Then the
	// address does not identify the caller, and App is zero.
	Shared bool
}

// CallerEdit is one change of [Callers]: the new app at an address, or its removal.
type CallerEdit struct {
	Address netip.Addr
	Caller  Caller
	Remove  bool
}

// Get returns the app at an address. An IPv4 address in IPv6 form is the same address.
func (c *Callers) Get(address netip.Addr) (caller Caller, ok bool) {
	if c == nil {
		return Caller{}, false
	}
	var room [16]byte
	key, last := splitAddress(&room, address)
	// The table only compares the key, and keeps no reference to it.
	block, ok := c.blocks.Get(App{ID: unsafe.String(unsafe.SliceData(key), len(key))})
	if !ok {
		return Caller{}, false
	}
	at, ok := block.find(last)
	if !ok {
		return Caller{}, false
	}
	return *block.callers[at], true
}

// find returns the place of a last byte in callers, where it is or would be.
func (b *callerBlock) find(last byte) (at int, ok bool) {
	word, bit := int(last/64), uint64(1)<<(last%64)
	for i := range word {
		at += bits.OnesCount64(b.present[i])
	}
	return at + bits.OnesCount64(b.present[word]&(bit-1)), b.present[word]&bit != 0
}

// Len is the number of addresses.
func (c *Callers) Len() int {
	if c == nil {
		return 0
	}
	return c.count
}

// With returns Callers with the edits made, in order. The old ones don't change.
func (c *Callers) With(edits ...CallerEdit) *Callers {
	next := &Callers{}
	if c != nil {
		*next = *c
	}
	one := map[Caller]*Caller{}
	blocks := map[string]*callerBlock{}
	for i := range edits {
		e := &edits[i]
		who := one[e.Caller]
		if who == nil {
			who = &Caller{e.Caller.App, e.Caller.Shared}
			one[e.Caller] = who
		}
		var room [16]byte
		key, last := splitAddress(&room, e.Address)
		block := blocks[string(key)]
		if block == nil {
			key := string(key)
			block = &callerBlock{}
			if old, ok := next.blocks.Get(App{ID: key}); ok {
				block = &callerBlock{old.present, slices.Clone(old.callers)}
			}
			blocks[key] = block
		}
		next.count += block.edit(last, who, e.Remove)
	}
	changed := make([]Edit[*callerBlock], 0, len(blocks))
	for key, block := range blocks {
		block.callers = slices.Clone(block.callers) // without room to spare
		changed = append(changed, Edit[*callerBlock]{App: App{ID: key}, Value: block, Remove: len(block.callers) == 0})
	}
	next.blocks = next.blocks.With(changed...)
	return next
}

// edit makes one edit in a block that nobody else has seen yet, and returns how many callers it has
// more.
func (b *callerBlock) edit(last byte, who *Caller, remove bool) int {
	at, present := b.find(last)
	switch {
	case remove && present:
		b.callers = slices.Delete(b.callers, at, at+1)
		b.present[last/64] &^= 1 << (last % 64)
		return -1
	case remove:
	case present:
		b.callers[at] = who
	default:
		b.callers = slices.Insert(b.callers, at, who)
		b.present[last/64] |= 1 << (last % 64)
		return 1
	}
	return 0
}

// splitAddress returns the bytes of an address without the last, and the last.
func splitAddress(room *[16]byte, address netip.Addr) (key []byte, last byte) {
	bytes := room[:]
	if address = address.Unmap(); address.Is4() {
		four := address.As4()
		bytes = append(room[:0], four[:]...)
	} else {
		*room = address.As16()
	}
	return bytes[:len(bytes)-1], bytes[len(bytes)-1]
}
