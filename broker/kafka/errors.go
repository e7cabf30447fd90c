package kafka

import (
	"errors"
	"fmt"
)

var (
	// errNoTopicID: without an id a topic that is deleted and created again would go on at its old offset.
	errNoTopicID = errors.New("no topic id from Kafka: upgrade it to 2.8 or newer")
	// errNotTold is what a leader's answer lacks when Kafka gives no reason.
	errNotTold = errors.New("the Kafka broker said nothing of the partition")
	// errNoAnswer is why nothing is told by a broker that is frozen or cut off.
	errNoAnswer = fmt.Errorf("no answer of the Kafka broker for %v", discoverTimeout)
	// errThrottled is why nothing is told of a topic's id: over its quota a client is answered a fetch with nothing.
	errThrottled = errors.New("no answer from Kafka while this node is over its request quota: raise request_percentage for its user or client id")
	// errReplaced is why a partition stalls whose records before the next one are others than those that were read.
	errReplaced = errors.New("records that were read already have been replaced")
	// errEnoughUnpacked has the Kafka client fetch a batch again, when what it has fetched was polled.
	errEnoughUnpacked = errors.New("other batches wait to be polled")
	errNoDecompressor = errors.New("the Kafka client has no decompressor")
	// errClosed is what Poll returns after Close.
	errClosed = errors.New("source is closed")
)
