package invitation

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"

	"github.com/isthmus-mesh/isthmus/identity"
)

// transcript is a digest of parts, each with its length before it, so that no two lists of parts
// have the same bytes.
type transcript struct{ h hash.Hash }

func newTranscript(label string) *transcript {
	t := &transcript{sha256.New()}
	t.add([]byte(label))
	return t
}

func (t *transcript) add(part []byte) {
	t.h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
	t.h.Write(part)
}

func (t *transcript) sum() []byte { return t.h.Sum(nil) }

// proof makes the MACs of one meeting.
type proof struct {
	t      *transcript
	secret []byte
	public []byte
}

// newProof begins with what identifies the connection and the invitation. The chains are those of
// the inviter and of the accepter.
func newProof(i *invitation, m *identity.Bootstrap, inviter, accepter [][]byte) *proof {
	p := &proof{t: newTranscript("isthmus link meeting v1"), secret: bytes.Clone(i.secret), public: i.public}
	p.t.add(m.Binding)
	for _, chain := range [][][]byte{inviter, accepter} {
		all := newTranscript("chain")
		for _, der := range chain {
			all.add(der)
		}
		p.t.add(all.sum())
	}
	p.t.add(i.public)
	return p
}

// The directions, each with a key of its own.
const (
	toInviter  = "isthmus link v1 to inviter"
	toAccepter = "isthmus link v1 to accepter"
)

// mac adds messages to what was said, and authenticates all of it.
func (p *proof) mac(direction string, messages ...[]byte) ([]byte, error) {
	for _, m := range messages {
		p.t.add(m)
	}
	key, err := hkdf.Key(sha256.New, p.secret, fingerprint(p.public), direction, sha256.Size)
	if err != nil {
		return nil, err
	}
	m := hmac.New(sha256.New, key)
	m.Write(p.t.sum())
	sum := m.Sum(nil)
	p.t.add(sum)
	return sum, nil
}
