package reload

import (
	"bytes"
	"encoding/pem"
	"errors"
)

// ErrHalfWritten is returned for a text of PEM of which a block cannot be read.
var ErrHalfWritten = errors.New("a block of PEM does not end, as in a file that is being written: write it beside its place and move it there")

// CheckPEM returns ErrHalfWritten unless all blocks that begin in the text can be read. Who reads a file while it is written
// would take those of its first half for all: other authorities would count as unknown, and what lies between them and
// a certificate be missing. A text that is cut between two blocks cannot be told from a whole one.
func CheckPEM(text []byte) error {
	mark := []byte("-----BEGIN ")
	begun := bytes.Count(text, append([]byte("\n"), mark...))
	if bytes.HasPrefix(text, mark) {
		begun++
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		begun--
	}
	if begun > 0 {
		return ErrHalfWritten
	}
	return nil
}
