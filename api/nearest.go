package api

// Nearest returns the candidate that s was probably meant to be, or "".
func Nearest(s string, candidates []string) string { return Nearest(s, candidates) }
