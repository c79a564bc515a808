// Package invitation connects two clusters by an invitation: a string that one cluster's operator
// makes and another's gives to their own service. The services meet at the inviter's gateway, prove
// themselves by their certificates and by the invitation's secret, and each writes the Cluster
// object of the other. docs/explanation/linking.md has the protocol and its threat model.
package invitation

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
	"unicode"

	"google.golang.org/protobuf/proto"

	"github.com/isthmus-mesh/isthmus/api/isthmus/v1alpha1"
	"github.com/isthmus-mesh/isthmus/catalog"
)

// version is the version of the protocol, which invitations begin with.
const version = 1

// The parts of an invitation, in bytes. Of a checksum, that many bytes of SHA-256 are kept.
const (
	prefix         = "isthmus-link-"
	checksumLength = 4
	secretLength   = 20
	idLength       = 16
	longest        = 16 << 10 // of the string
)

// Bounds of what an invitation names.
const (
	maxGateways = 16
	maxRoots    = 20 // as in a Cluster object
)

// invitation is an invitation with its secret. It is immutable, but for the secret that is wiped
// at its end.
type invitation struct {
	secret []byte
	public []byte // as it is in the string: a MAC covers every byte
	*v1alpha1.Invitation
}

// newInvitation makes a secret and an ID for what an invitation says.
func newInvitation(said *v1alpha1.Invitation) (*invitation, error) {
	i := &invitation{secret: make([]byte, secretLength), Invitation: said}
	said.Id = make([]byte, idLength)
	rand.Read(i.secret)
	rand.Read(said.Id)
	var err error
	i.public, err = proto.Marshal(said)
	return i, err
}

// String hides the secret, which is in [invitation.text] alone.
func (i *invitation) String() string { return "invitation " + hex.EncodeToString(i.Id) }

// text is the string that is given to the other cluster.
func (i *invitation) text() string {
	rest := append(bytes.Clone(i.secret), i.public...)
	return fmt.Sprintf("%s%d.%s", prefix, version, base64.RawURLEncoding.EncodeToString(append(checksum(rest), rest...)))
}

func checksum(rest []byte) []byte {
	sum := sha256.Sum256(append([]byte(prefix), rest...))
	return sum[:checksumLength]
}

// expires is when the invitation ends, by the inviter's clock.
func (i *invitation) expires() time.Time { return time.Unix(i.GetExpiresUnix(), 0) }

// Parse errors never repeat a part of the text, which is a secret.
func parseInvitation(text string) (*invitation, error) {
	malformed := func(what string) (*invitation, error) { return nil, refuse(Malformed, what) }
	if len(text) > longest {
		return malformed("it is too long")
	}
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return -1 // a mail program has folded it
		}
		return r
	}, text)
	head, body, ok := strings.Cut(strings.Trim(text, `'"`), ".")
	number, isOurs := strings.CutPrefix(head, prefix)
	switch {
	case !ok || !isOurs:
		return malformed(fmt.Sprintf("it does not begin with %s%d.", prefix, version))
	case number != fmt.Sprint(version):
		return nil, refuse(Version, "")
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || len(b) < checksumLength+secretLength {
		return malformed("a character is wrong, or some are missing")
	}
	if rest := b[checksumLength:]; subtle.ConstantTimeCompare(b[:checksumLength], checksum(rest)) != 1 {
		return malformed("its checksum is wrong: a character is, or some are missing")
	}
	b = b[checksumLength:]
	i := &invitation{secret: b[:secretLength:secretLength], public: b[secretLength:], Invitation: &v1alpha1.Invitation{}}
	if err := proto.Unmarshal(i.public, i.Invitation); err != nil {
		return malformed("its content can't be read")
	}
	if what := i.check(); what != "" {
		return malformed(what)
	}
	return i, nil
}

// check tells what an invitation lacks; empty if nothing.
func (i *invitation) check() string {
	for _, cluster := range []string{i.GetCluster(), i.GetInvited()} {
		if catalog.CheckCluster(cluster) != nil {
			return "a cluster's name in it is none"
		}
	}
	switch {
	case catalog.CheckDomain(i.GetDomain()) != nil:
		return "its domain is none"
	case len(i.GetGateways()) == 0 || len(i.GetGateways()) > maxGateways:
		return "it has no gateway, or too many"
	case len(i.GetRoots()) == 0 || len(i.GetRoots()) > maxRoots:
		return "it has no fingerprint of a root, or too many"
	case len(i.GetId()) != idLength:
		return "its ID is none"
	}
	for _, root := range i.GetRoots() {
		if len(root) != sha256.Size {
			return "a fingerprint in it is none"
		}
	}
	for _, gateway := range i.GetGateways() {
		if _, err := catalog.CheckGateway(gateway); err != nil {
			return "a gateway in it is no address"
		}
	}
	return ""
}
