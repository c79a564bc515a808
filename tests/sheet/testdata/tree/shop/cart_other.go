//go:build !linux

package shop

func (c *Cart[T]) lock() {}
