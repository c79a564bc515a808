// Package keypair reads the certificate of a listener for outsiders, and reads it again when its
// files change.
package keypair

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/isthmus-mesh/isthmus/identity"
)

// Pair is a certificate with its private key. It compares the bytes of the files when a client
// connects or the status is read, at most once a second. That works for renames and for the
// symlink swaps of Kubernetes mounts. If the new files are unusable, the old certificate stays.
type Pair struct {
	use       string // as "isthmus trust" prints it
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	looked time.Time
	texts  [2][]byte // of the pair
	pair   *tls.Certificate
	err    error // why the files are unusable now
}

// lookEvery is the least time between two looks at the files.
const lookEvery = time.Second

// Load reads a certificate with its intermediates, and its private key, in PEM. use is one of the
// uses of package identity. The caller adds the name of its setting to the error.
func Load(use, cert, key string, log *slog.Logger) (*Pair, error) {
	c := &Pair{use: use, cert: cert, key: key, log: log}
	if c.look(); c.err != nil {
		return nil, fmt.Errorf("%w; name a certificate and its private key in PEM that this user may read", c.err)
	}
	return c, nil
}

// Get returns the certificate, for a [tls.Config].
func (c *Pair) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renew()
	return c.pair, nil
}

// Trusted returns the certificate for the status, with the error of the newest files. So an
// operator sees the error before a client connects.
func (c *Pair) Trusted() identity.Trusted {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renew()
	return identity.ToOutsiders(c.use, c.pair.Leaf, c.err)
}

// renew checks the files, at most once a second; mu is held.
func (c *Pair) renew() {
	if time.Since(c.looked) < lookEvery {
		return
	}
	before := c.err
	switch c.look(); {
	case c.err != nil && before == nil:
		c.log.Warn(c.use+": new files unusable; the old certificate stays in use", "err", c.err, "expires", c.pair.Leaf.NotAfter)
	case c.err == nil && before != nil:
		c.log.Info(c.use+": files usable again", "expires", c.pair.Leaf.NotAfter)
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
		c.log.Warn(c.use+": certificate not valid now, so clients will refuse it; replace its files", "file", c.cert, "from", from, "to", to)
	}
}

func (c *Pair) read() (texts [2][]byte, err error) {
	for i, path := range []string{c.cert, c.key} {
		if texts[i], err = identity.ReadFile(path); err != nil {
			return texts, err
		}
	}
	return texts, nil
}
