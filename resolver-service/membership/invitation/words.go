package invitation

import (
	"crypto/sha256"
	_ "embed" // for the list
	"encoding/binary"
	"slices"
	"strings"
	"sync"
)

// wordsText is the English list of BIP 39: 2,048 words that differ in their first four letters.
// It is from github.com/tyler-smith/go-bip39; words.LICENSE has its license.
//
//go:embed words.txt
var wordsText string

var wordList = sync.OnceValue(func() []string { return strings.Fields(wordsText) })

// Of four words of 2,048.
const (
	wordBits = 11
	wordsOf  = 4
)

// side is what one cluster brings to the words: the fingerprints of its roots, and a nonce.
type side struct {
	roots [][]byte
	nonce []byte
}

// nonceLength is how long a nonce is, in bytes.
const nonceLength = 32

// hash is a digest of a side, for commitments. The order of the roots does not matter.
func (s side) hash() []byte {
	t := newTranscript("isthmus link side v1")
	t.add(s.nonce)
	for _, root := range slices.SortedFunc(slices.Values(s.roots), slices.Compare) {
		t.add(root)
	}
	return t.sum()
}

// wordsFor are the four words of two clusters. The nonces are there so that nobody can choose
// roots whose words agree with others': each side is bound to its own before it knows the other's.
func wordsFor(inviter, accepter side) []string {
	t := newTranscript("isthmus link words v1")
	t.add(inviter.hash())
	t.add(accepter.hash())
	bits := binary.BigEndian.Uint64(t.sum()[:8])
	words := make([]string, wordsOf)
	for i := range words {
		words[i] = wordList()[bits>>(64-wordBits)]
		bits <<= wordBits
	}
	return words
}

// fingerprint is the SHA-256 of a certificate.
func fingerprint(der []byte) []byte {
	sum := sha256.Sum256(der)
	return sum[:]
}
