// Package logged has a log that can be read while others still write to it.
package logged

import (
	"strings"
	"sync"
)

// Buffer is what was logged. The zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write is that of [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String is all of it so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
