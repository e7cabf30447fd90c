package reload

import (
	"encoding/pem"
	"errors"
	"testing"
)

func TestCheckPEM_refusesABlockThatDoesNotEnd(t *testing.T) {
	block := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: make([]byte, 100)}))
	for text, whole := range map[string]bool{
		"":    true,
		block: true,
		"a comment\n" + block + "another\n" + block: true,
		"some -----BEGIN of a sentence\n" + block:   true,
		block[:len(block)/2]:                        false,
		block + block[:len(block)-10]:               false,
		block + block[:20]:                          false,
		block[:len(block)/2] + "\n" + block:         false,
	} {
		if err := CheckPEM([]byte(text)); (err == nil) != whole || err != nil && !errors.Is(err, ErrHalfWritten) {
			t.Errorf("%v, want whole: %v, of\n%s", err, whole, text)
		}
	}
}
