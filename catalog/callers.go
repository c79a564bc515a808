package catalog

import (
	"net/netip"
	"unsafe"
)

// Callers says which app asks from an address: the one whose instances are there. It is
// immutable; [Callers.With] shares with the old one whatever does not change. A look-up
// takes no lock and allocates nothing. The zero Callers knows nobody.
type Callers struct {
	// The app-id of a key is an address, 4 or 16 bytes. Callers that came in together are
	// one value for all their addresses.
	byAddress Table[*Caller]
}

// Caller is who has an address.
type Caller struct {
	App App
	// Shared is set where instances of several apps have the address, as on a host's own
	// network: it does not tell who asks, and App is zero.
	Shared bool
}

// CallerEdit is one change of [Callers]: who has an address now, or that nobody has.
type CallerEdit struct {
	Address netip.Addr
	Caller  Caller
	Remove  bool
}

// Get returns who has an address. An IPv4 address in IPv6 is the same as without.
func (c *Callers) Get(address netip.Addr) (caller Caller, ok bool) {
	if c == nil {
		return Caller{}, false
	}
	var room [16]byte
	key := addressBytes(&room, address)
	// The table compares the key with what it has, and keeps nothing of it.
	if who, ok := c.byAddress.Get(App{ID: unsafe.String(unsafe.SliceData(key), len(key))}); ok {
		return *who, true
	}
	return Caller{}, false
}

// Len is the number of addresses.
func (c *Callers) Len() int {
	if c == nil {
		return 0
	}
	return c.byAddress.Len()
}

// With returns Callers with the edits made, in order. The old ones stand as they were.
func (c *Callers) With(edits ...CallerEdit) *Callers {
	next := make([]Edit[*Caller], len(edits))
	one := map[Caller]*Caller{}
	for i, e := range edits {
		who := one[e.Caller]
		if who == nil {
			who = &Caller{e.Caller.App, e.Caller.Shared}
			one[e.Caller] = who
		}
		var room [16]byte
		next[i] = Edit[*Caller]{App: App{ID: string(addressBytes(&room, e.Address))}, Value: who, Remove: e.Remove}
	}
	if c == nil {
		return &Callers{NewTable(next)}
	}
	return &Callers{c.byAddress.With(next...)}
}

func addressBytes(room *[16]byte, address netip.Addr) []byte {
	if address = address.Unmap(); address.Is4() {
		four := address.As4()
		return append(room[:0], four[:]...)
	}
	*room = address.As16()
	return room[:]
}
