package message

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// What instructs us on a record, is taken off it on delivery, and is added. The names are those of
// package client, which the broker does not import; a test holds them equal.
const (
	instructionPrefix   = "deliver-"
	headerKey           = "deliver-key"
	headerKeyBase64     = "deliver-key-base64"
	headerCancel        = "deliver-cancel"
	headerIf            = "deliver-if"
	headerExpiresAt     = "deliver-expires-at"
	headerExpiresAfter  = "deliver-expires-after"
	headerDeliveredID   = "delivered-id"
	headerDeliveredFor  = "delivered-for"
	headerDeliveredFrom = "delivered-from"
	headerDeliveredSeq  = "delivered-seq"
)

// AppendDeliveredHeaders appends to headers those of the delivered record: those of the message
// without its instructions, in order, and what is added. The seq is the message's own,
// in the cluster of that id. What is added stands there once: of a record that was made
// from a delivered one, or forged, those that it came with are left out.
func (m *Message) AppendDeliveredHeaders(headers []Header, clusterID [16]byte, seq uint64) []Header {
	headers = slices.Grow(headers, len(m.Headers)+4)
	for _, h := range m.Headers {
		if !strings.HasPrefix(h.Key, instructionPrefix) && !isDelivered(h.Key) {
			headers = append(headers, h)
		}
	}
	// The added values are parts of one allocation.
	text := make([]byte, 0, len(m.ID)+2*(len(m.Origin.Topic)+originDigits)+mostDigits+seqLength)
	add := func(name string, value func(b []byte) []byte) {
		start := len(text)
		text = value(text)
		headers = append(headers, Header{name, text[start:len(text):len(text)]})
	}
	add(headerDeliveredID, m.appendName)
	add(headerDeliveredFor, func(b []byte) []byte { return strconv.AppendInt(b, m.PlannedFor, 10) })
	add(headerDeliveredFrom, m.Origin.append)
	add(headerDeliveredSeq, func(b []byte) []byte { return appendSeq(b, clusterID, seq) })
	return headers
}

// isDelivered reports whether a header of that name is added on delivery.
func isDelivered(name string) bool {
	switch name {
	case headerDeliveredID, headerDeliveredFor, headerDeliveredFrom, headerDeliveredSeq:
		return true
	}
	return false
}

// DeliveredKey returns the key of the delivered record: that of deliver-key or
// deliver-key-base64, if the message has one of these headers, else its own.
func (m *Message) DeliveredKey() []byte {
	for _, h := range m.Headers {
		switch h.Key {
		case headerKey:
			return h.Value
		case headerKeyBase64:
			if key, err := base64.StdEncoding.DecodeString(string(h.Value)); err == nil { // ingest takes no other
				return key
			}
		}
	}
	return m.Key
}

// appendSeq names a message for ever, in this cluster and any other: a consumer
// deduplicates by it, since ids can be used again.
//
//	cluster id (32 hex digits) "/" seq (decimal)
func appendSeq(b []byte, cluster [16]byte, seq uint64) []byte {
	return strconv.AppendUint(append(hex.AppendEncode(b, cluster[:]), '/'), seq, 10)
}

const (
	mostDigits = len("-9223372036854775808")
	seqLength  = 2*16 + 1 + mostDigits
)
