package message

import (
	"testing"

	"github.com/carillonmq/carillon/client"
)

func TestHeaders_areThoseOfTheContract(t *testing.T) {
	for ours, theirs := range map[string]string{
		instructionPrefix:    client.InstructionPrefix,
		headerKey:            client.HeaderKey,
		headerKeyBase64:      client.HeaderKeyBase64,
		headerDeliveredID:    client.HeaderDeliveredID,
		headerDeliveredFor:   client.HeaderDeliveredFor,
		headerDeliveredFrom:  client.HeaderDeliveredFrom,
		headerDeliveredSeq:   client.HeaderDeliveredSeq,
		headerErrorCode:      client.HeaderErrorCode,
		headerErrorMessage:   client.HeaderErrorMessage,
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
