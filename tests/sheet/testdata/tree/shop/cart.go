// Package shop sells.
package shop

// Reader reads.
type Reader interface {
	Get() string
}

// Store reads and writes.
type Store interface {
	Reader
	Put(string)
	Delete(string)
}

// Cart is a cart.
type Cart[T any] struct{ text string }

// Get has a text of two lines.
func (c *Cart[T]) Get() string {
	return `one
two`
}

func (c Cart[T]) put() {} // a comment beside code
