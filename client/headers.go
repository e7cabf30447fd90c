package client

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is franz-go's record, named here so that callers need not import franz-go to build one.
type Record = kgo.Record

// Header is one header of a [Record]. A nil value and an empty one differ.
type Header = kgo.RecordHeader

// InstructionPrefix begins every header that instructs Carillon. All of them are stripped on
// delivery.
const InstructionPrefix = "deliver-"

// Headers of a record on a delay topic. Values are UTF-8 text and never empty, but HeaderKeyBase64
// may be, for the empty key. Each comes at most once. HeaderAt wins over HeaderAfter, which counts
// from the record's timestamp. A name in another case, such as Deliver-To, is refused.
const (
	HeaderAt        = "deliver-at"         // RFC 3339 with zone, or epoch milliseconds from 10^11 on
	HeaderAfter     = "deliver-after"      // delay: milliseconds, Go duration or ISO 8601
	HeaderTo        = "deliver-to"         // target topic
	HeaderKey       = "deliver-key"        // key of the delivered record, text
	HeaderKeyBase64 = "deliver-key-base64" // in place of HeaderKey: bytes, in base64 (RFC 4648)
	HeaderPartition = "deliver-partition"  // partition of the target topic, from 0
	HeaderID        = "deliver-id"         // the caller's id, 1 to MaxIDBytes bytes, neither topic/number/number nor api/... nor a slash alone
)

// Headers that a cluster serves from feature level 3 on, and refuses below it with
// [CodeUnsupported].
const (
	HeaderCancel       = "deliver-cancel"        // true: cancel the message of HeaderID; the record is none itself
	HeaderIf           = "deliver-if"            // absent, present, or a seq: what must wait under HeaderID
	HeaderExpiresAt    = "deliver-expires-at"    // from then on it is not delivered any more; as HeaderAt
	HeaderExpiresAfter = "deliver-expires-after" // the same as a delay from the due time; as HeaderAfter
)

// Headers with a reserved meaning that Carillon refuses for now, with [CodeUnsupported].
const (
	HeaderCron  = "deliver-cron"
	HeaderEvery = "deliver-every"
	HeaderUntil = "deliver-until"
	HeaderCount = "deliver-count"
)

// Headers that Carillon adds to a delivered record.
const (
	HeaderDeliveredID   = "delivered-id"   // deliver-id, or topic/partition/offset on the delay topic
	HeaderDeliveredFor  = "delivered-for"  // planned time, epoch milliseconds
	HeaderDeliveredFrom = "delivered-from" // topic/partition/offset on the delay topic
	HeaderDeliveredSeq  = "delivered-seq"  // cluster id and sequence number: deduplicate by this one
)

// Headers that Carillon adds to a record it puts, otherwise unchanged, on the dead-letter topic.
const (
	HeaderErrorCode      = "__carillon.errors.code"
	HeaderErrorMessage   = "__carillon.errors.message"
	HeaderErrorTopic     = "__carillon.errors.topic"
	HeaderErrorPartition = "__carillon.errors.partition"
	HeaderErrorOffset    = "__carillon.errors.offset"
	// HeaderErrorValueDropped gives the size of a value left out, of a record above 16 MiB.
	HeaderErrorValueDropped = "__carillon.errors.value-dropped"
)

// OwnPrefix begins ids that Carillon itself makes: no deliver-id of a message may begin so. One that
// cancels may.
const OwnPrefix = "api/"

// MaxIDBytes is the length of the longest deliver-id.
const MaxIDBytes = 256

// supportedHeaders is what the error about an unknown header offers instead.
const supportedHeaders = HeaderAt + ", " + HeaderAfter + ", " + HeaderTo + ", " + HeaderKey + ", " +
	HeaderKeyBase64 + ", " + HeaderPartition + ", " + HeaderID + ", " + HeaderCancel + ", " + HeaderIf + ", " +
	HeaderExpiresAt + ", " + HeaderExpiresAfter

// reservedHeaders are refused with [CodeUnsupported].
var reservedHeaders = []string{HeaderCron, HeaderEvery, HeaderUntil, HeaderCount}
