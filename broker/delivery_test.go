package broker

import (
	"testing"

	"github.com/carillonmq/carillon/client"
)

func TestHeaders_areThoseOfTheContract(t *testing.T) {
	for ours, theirs := range map[string]string{
		headerDeliveredID:    client.HeaderDeliveredID,
		headerDeliveredFor:   client.HeaderDeliveredFor,
		headerDeliveredFrom:  client.HeaderDeliveredFrom,
		headerDeliveredSeq:   client.HeaderDeliveredSeq,
		headerErrorCode:      client.HeaderErrorCode,
		headerErrorMessage:   client.HeaderErrorMessage,
		headerErrorTopic:     client.HeaderErrorTopic,
		headerErrorPartition: client.HeaderErrorPartition,
		headerErrorOffset:    client.HeaderErrorOffset,
	} {
		if ours != theirs {
			t.Errorf("the broker says %q, the contract %q", ours, theirs)
		}
	}
}
