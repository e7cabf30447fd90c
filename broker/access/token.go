package access

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"math/big"
	"strings"
)

// A token is what a program shows to say who it is:
//
//	carillon_<id>_<secret>_<check>
//
//	id      8 characters; names the token in lists and logs, and is no secret
//	secret  32 random bytes, 43 characters
//	check   CRC-32 (IEEE) of all that stands before its underscore, 6 characters
//
// All three are base62 of a fixed width. The check tells one that was copied badly from
// one that is not known, and lets programs that look for leaked secrets find few others.
const (
	tokenPrefix = "carillon"
	idWidth     = 8
	secretBytes = 32
	secretWidth = 43 // 62^43 > 2^256 > 62^42
	checkWidth  = 6  // 62^6 > 2^32
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// A Digest is the SHA-256 of a token, all that is kept of it. Who reads it learns nothing:
// the secret is too long to be guessed, so a slow hash would add nothing.
type Digest [sha256.Size]byte

// newToken returns a token, which is kept nowhere else, and its id.
func newToken() (token, id string) {
	id = encode(random(secretBytes), secretWidth)[secretWidth-idWidth:]
	head := tokenPrefix + "_" + id + "_" + encode(random(secretBytes), secretWidth)
	return head + "_" + check(head), id
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails: it ends the process instead
	return b
}

func check(head string) string {
	sum := crc32.ChecksumIEEE([]byte(head))
	return encode([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}, checkWidth)
}

// encode writes the number that the bytes are, big endian, in so many characters.
func encode(b []byte, width int) string {
	n, radix, digit := new(big.Int).SetBytes(b), big.NewInt(int64(len(base62))), new(big.Int)
	text := make([]byte, width)
	for i := width - 1; i >= 0; i-- {
		n.DivMod(n, radix, digit)
		text[i] = base62[digit.Int64()]
	}
	return string(text)
}

// readToken returns the id and the digest of a token. Its error says what is wrong with
// the form and shows nothing of the text.
func readToken(text string) (id string, d Digest, err error) {
	if len(text) != len(tokenPrefix)+1+idWidth+1+secretWidth+1+checkWidth {
		return "", d, fmt.Errorf("%w: it has %d characters", ErrMalformed, len(text))
	}
	parts := strings.Split(text, "_")
	if len(parts) != 4 || parts[0] != tokenPrefix || len(parts[1]) != idWidth || len(parts[2]) != secretWidth {
		return "", d, ErrMalformed
	}
	if check(text[:len(text)-checkWidth-1]) != parts[3] {
		return "", d, fmt.Errorf("%w: its last characters do not fit to the others", ErrMalformed)
	}
	return parts[1], sha256.Sum256([]byte(text)), nil
}
