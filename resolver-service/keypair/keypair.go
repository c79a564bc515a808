// Package keypair has the certificate of a listener that outsiders connect to, as it
// stands in files now.
package keypair

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
)

// Pair is a certificate with its private key, read again when their files change. It looks
// at their bytes when a client comes or the status is asked for, at most once a second: that
// is right for renames and for the symlink swaps of Kubernetes mounts alike. What can't be used
// leaves the one before in place.
type Pair struct {
	use       string // as in "isthmus trust"
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	looked time.Time
	texts  [2][]byte // of the pair
	pair   *tls.Certificate
	err    error // why the files as they are now can't be used
}

const (
	lookEvery = time.Second
	maxFile   = 1 << 20 // of a file that was named by mistake
)

// Load reads a certificate with its intermediates, and its private key, in PEM, for a use that
// package identity names. The error says what to do; the setting that names the files is the
// caller's to add.
func Load(use, cert, key string, log *slog.Logger) (*Pair, error) {
	c := &Pair{use: use, cert: cert, key: key, log: log}
	if c.look(); c.err != nil {
		return nil, fmt.Errorf("%w; name a certificate and its private key in PEM that this user may read", c.err)
	}
	return c, nil
}

// Get is for a [tls.Config].
func (c *Pair) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renew()
	return c.pair, nil
}

// Trusted is the certificate that stands, with why the files as they are now can't be used:
// who looks at the status is told before a client comes.
func (c *Pair) Trusted() identity.Trusted {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renew()
	return identity.ToOutsiders(c.use, c.pair.Leaf, c.err)
}

// renew looks at the files, if that was not done just now. It is called with mu held.
func (c *Pair) renew() {
	if time.Since(c.looked) < lookEvery {
		return
	}
	before := c.err
	switch c.look(); {
	case c.err != nil && before == nil:
		c.log.Warn(c.use+": the newest can't be used; the one before stands", "err", c.err, "expires", c.pair.Leaf.NotAfter)
	case c.err == nil && before != nil:
		c.log.Info(c.use+": the files can be used again", "expires", c.pair.Leaf.NotAfter)
	}
}

func (c *Pair) look() {
	c.looked = time.Now()
	texts, err := c.read()
	if err == nil && c.pair != nil && bytes.Equal(texts[0], c.texts[0]) && bytes.Equal(texts[1], c.texts[1]) {
		c.err = nil
		return
	}
	var pair tls.Certificate
	if err == nil {
		if pair, err = tls.X509KeyPair(texts[0], texts[1]); err != nil {
			err = fmt.Errorf("%s with key %s: %w", c.cert, c.key, err)
		}
	}
	if err != nil {
		c.err = err
		return
	}
	c.pair, c.texts, c.err = &pair, texts, nil
	if from, to := pair.Leaf.NotBefore, pair.Leaf.NotAfter; c.looked.Before(from) || c.looked.After(to) {
		c.log.Warn(c.use+": it is not valid now, so clients will refuse it; write another one to its files", "file", c.cert, "from", from, "to", to)
	}
}

func (c *Pair) read() (texts [2][]byte, err error) {
	for i, path := range []string{c.cert, c.key} {
		info, err := os.Stat(path)
		if err != nil {
			return texts, err
		}
		if !info.Mode().IsRegular() || info.Size() > maxFile {
			return texts, fmt.Errorf("%s is no file of at most %d bytes", path, maxFile)
		}
		if texts[i], err = os.ReadFile(path); err != nil {
			return texts, err
		}
	}
	return texts, nil
}
