package message

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/client"
)

func TestHeaders_areThoseOfTheContract(t *testing.T) {
	for ours, theirs := range map[string]string{
		instructionPrefix:    client.InstructionPrefix,
		headerKey:            client.HeaderKey,
		headerKeyBase64:      client.HeaderKeyBase64,
		headerCancel:         client.HeaderCancel,
		headerIf:             client.HeaderIf,
		headerExpiresAt:      client.HeaderExpiresAt,
		headerExpiresAfter:   client.HeaderExpiresAfter,
		headerDeliveredID:    client.HeaderDeliveredID,
		headerDeliveredFor:   client.HeaderDeliveredFor,
		headerDeliveredFrom:  client.HeaderDeliveredFrom,
		headerDeliveredSeq:   client.HeaderDeliveredSeq,
		headerErrorCode:      client.HeaderErrorCode,
		headerErrorMessage:   client.HeaderErrorMessage,
		OwnPrefix:            client.OwnPrefix,
		headerErrorTopic:     client.HeaderErrorTopic,
		headerErrorPartition: client.HeaderErrorPartition,
		headerErrorOffset:    client.HeaderErrorOffset,
		headerValueDropped:   client.HeaderErrorValueDropped,
	} {
		if ours != theirs {
			t.Errorf("the broker says %q, the contract %q", ours, theirs)
		}
	}
}

// A consumer can send back what it got, and nobody can forge what Carillon says.
func TestDeliveredHeaders_areCarillonsOwn(t *testing.T) {
	m := Message{ID: "i", Origin: Origin{"in.delay", 2, 40}, PlannedFor: 7, Headers: []Header{
		{"delivered-seq", []byte("forged/1")}, {"a", nil}, {"deliver-id", []byte("i")}, {"delivered-by", []byte("mail")}, {"delivered-id", nil},
		{"delivered-for", []byte("1")}, {"Delivered-Id", []byte("x")}, {"delivered-from", []byte{}}, {"a", []byte{}}, {"delivered-id", []byte("j")},
	}}
	want := []Header{{"a", nil}, {"delivered-by", []byte("mail")}, {"Delivered-Id", []byte("x")}, {"a", []byte{}},
		{"delivered-id", []byte("i")}, {"delivered-for", []byte("7")}, {"delivered-from", []byte("in.delay/2/40")},
		{"delivered-seq", []byte("01000000000000000000000000000000/9")}}
	if diff := cmp.Diff(want, m.AppendDeliveredHeaders(nil, [16]byte{1}, 9)); diff != "" {
		t.Error(diff)
	}
	letter := m.AsDeadLetter(Problem{CodeMalformed, "why"}, 0)
	if diff := cmp.Diff(m.Headers, letter.Headers[:len(m.Headers)]); diff != "" {
		t.Errorf("the dead letter does not keep all: %s", diff)
	}
}

func TestDeliveredKey_isWhatAHeaderSays(t *testing.T) {
	for want, headers := range map[string][]Header{
		"own":          {{"a", []byte("b")}},
		"other":        {{"a", nil}, {"deliver-key", []byte("other")}},
		"\x00\x00\xff": {{"deliver-key-base64", []byte("AAD/")}},
		"":             {{"deliver-key-base64", []byte{}}},
		"base64:AAD/":  {{"deliver-key", []byte("base64:AAD/")}},
	} {
		m := Message{Key: []byte("own"), Headers: headers}
		if got := m.DeliveredKey(); got == nil || string(got) != want { // an empty key is not null
			t.Errorf("headers %v: key %#v, want %q", headers, got, want)
		}
	}
}
