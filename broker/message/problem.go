package message

// A Problem says why a message goes to the dead-letter topic instead of its target.
type Problem struct {
	Code    string // one of the Problem codes
	Message string // names the field, the value and the remedy
}

// The codes of a Problem, as they stand in the header __carillon.errors.code.
const (
	CodeMalformed      = "malformed"        // a deliver-* header cannot be read
	CodeUnsupported    = "unsupported"      // a deliver-* header that is not served yet
	CodeTargetDenied   = "target-denied"    // the configuration does not allow the target
	CodeTargetInvalid  = "target-invalid"   // not a topic name, or no such partition
	CodeTargetMissing  = "target-missing"   // the topic did not appear in time
	CodeTooManyMissing = "too-many-missing" // the topic is missing, and so are as many others as may be
	CodeTargetForbids  = "target-forbidden" // Kafka refuses us the target
	CodeBeyondMaxDelay = "beyond-max-delay" // due later than the route allows
	CodeTooLarge       = "too-large"        // the target, or the schedule, does not take a record of this size
	CodeRefused        = "refused"          // the target refuses this record for another reason
)

// IntakeCodes are those of records that are refused when they are read.
func IntakeCodes() []string {
	return []string{CodeMalformed, CodeUnsupported, CodeTargetDenied, CodeTargetInvalid, CodeBeyondMaxDelay, CodeTooLarge}
}

// DeliveryCodes are those of messages that cannot be delivered.
func DeliveryCodes() []string {
	return []string{CodeTargetInvalid, CodeTargetMissing, CodeTooManyMissing, CodeTargetForbids, CodeTooLarge, CodeRefused}
}
