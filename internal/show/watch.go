package show

import (
	"bytes"
	"fmt"
	"io"
	"time"
)

// clear makes a terminal empty.
const clear = "\x1b[H\x1b[2J"

// Frame writes one of several answers to the same question, with its time. A terminal shows it in
// place of the one before.
func Frame(screen *Screen, now time.Time, body func(io.Writer) error) error {
	var text bytes.Buffer
	inner := *screen
	inner.Writer = &text
	if err := body(&inner); err != nil {
		return err
	}
	head, tail := "", "\n"
	if screen.Terminal {
		head, tail = clear, ""
	}
	_, err := fmt.Fprintf(screen.Writer, "%s%s\n\n%s%s", head, now.Format(time.RFC3339), text.String(), tail)
	return err
}
