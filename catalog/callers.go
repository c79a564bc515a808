package catalog

import (
	"net/netip"
	"unsafe"
)

// Callers maps an address to the app whose instance is there, and which so is the caller. It is
// immutable; [Callers.With] shares all unchanged parts. A lookup takes no lock and allocates
// nothing. The zero Callers is empty.
type Callers struct {
	// The app-id of a key is an address of 4 or 16 bytes. Equal callers in one call of With share
	// one value.
	byAddress Table[*Caller]
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
	key := addressBytes(&room, address)
	// The table only compares the key, and keeps no reference to it.
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

// With returns Callers with the edits made, in order. The old ones don't change.
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
