package login

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/isthmus-mesh/isthmus/internal/atomicfile"
)

// OnceConfig is about a gate whose URL works once.
type OnceConfig struct {
	URL     string // the console's own, such as http://127.0.0.1:8250
	Person  string // whom the URL is for
	HowTo   string // get the next URL: a sentence for pages; it has a default with KeyFile
	KeyFile string // where the next URL always stands, for its owner only; "": nowhere
	// Used is told the next URL when one was used; nil: nobody is told.
	Used func(next string)
}

// Once is a gate for a user with the right to run a command, or read a file, on the console's
// machine. A session lasts as long as the process, and may do all that the service lets it.
type Once struct {
	*Gate
	config OnceConfig
	key    atomic.Pointer[string]

	publishing sync.Mutex
}

// NewOnce makes a gate whose URL works once, and writes its URL to the file, if there is to be one.
func NewOnce(c OnceConfig, log *slog.Logger) (*Once, error) {
	g, err := newGate(c.URL, log)
	if err != nil {
		return nil, err
	}
	if c.HowTo == "" {
		c.HowTo = fmt.Sprintf("The next URL is in the file %s on the console's machine.", c.KeyFile)
	}
	o := &Once{Gate: g, config: c}
	g.sessions.life, g.sessions.idle = forever, forever
	g.doors = map[string]http.HandlerFunc{"/enter": o.use}
	g.stranger = func(w http.ResponseWriter, _ *http.Request) {
		show(w, http.StatusUnauthorized, page{Title: "You need a URL that works once", Text: []string{c.HowTo}})
	}
	key := random()
	o.key.Store(&key)
	return o, o.publish()
}

// URL is where one can enter, once.
func (o *Once) URL() string { return o.url.String() + "/enter?key=" + *o.key.Load() }

// use lets in whoever has the key, and makes the next one.
func (o *Once) use(w http.ResponseWriter, r *http.Request) {
	key, next := o.key.Load(), random()
	right := subtle.ConstantTimeCompare([]byte(r.URL.Query().Get("key")), []byte(*key)) == 1
	if !right || !o.key.CompareAndSwap(key, &next) {
		o.refused(r, "key")
		show(w, http.StatusForbidden, page{Title: "This URL does not work, or no longer", To: "/",
			Link: "To the console, if you are in already", Text: []string{"A URL to enter works once. " + o.config.HowTo}})
		return
	}
	if err := o.publish(); err != nil {
		o.log.Error("console: the next URL can't be written; make the directory writable and restart", "err", err)
	}
	if o.config.Used != nil {
		o.config.Used(o.URL())
	}
	o.let(w, r, Session{Person: o.config.Person})
	o.log.Info("console: signed in", "person", o.config.Person, "address", r.RemoteAddr, "by", "one-time URL")
	onward(w, "/")
}

// publish writes the URL of now to the file; after the last of two at once, it has the newest.
func (o *Once) publish() error {
	if o.config.KeyFile == "" {
		return nil
	}
	o.publishing.Lock()
	defer o.publishing.Unlock()
	err := atomicfile.Write(o.config.KeyFile, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, o.URL())
		return err
	})
	if err != nil {
		return fmt.Errorf("write the console's URL to %s: %w", o.config.KeyFile, err)
	}
	return nil
}
