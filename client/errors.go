package client

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// Causes that errors of this package wrap; test for them with errors.Is.
var (
	// ErrMalformed: an instruction header cannot be understood. Every [HeaderError] with
	// [CodeMalformed] wraps it.
	ErrMalformed = errors.New("malformed instruction")
	// ErrUnsupported: an instruction header has a meaning that this version does not offer.
	ErrUnsupported = errors.New("unsupported instruction")
	// ErrTopicMissing: the delay topic does not exist and Kafka did not create it.
	ErrTopicMissing = errors.New("delay topic does not exist")
	// ErrForbidden: Kafka does not let this client write to the delay topic.
	ErrForbidden = errors.New("not authorized to write to the delay topic")
	// ErrTooLarge: the record exceeds what Kafka or the client allows.
	ErrTooLarge = errors.New("record too large")
	// ErrClosed: the producer or its client is closed.
	ErrClosed = errors.New("producer is closed")
)

// Code says in one word why a record is refused. It is the value of the header [HeaderErrorCode].
type Code string

// Codes for instruction headers.
const (
	CodeMalformed   Code = "malformed"
	CodeUnsupported Code = "unsupported"
)

// HeaderError says which instruction header is wrong and what to do about it.
type HeaderError struct {
	Code    Code
	Field   string // the header's name
	Value   string // the header's value, of a long one its first 64 bytes; "" when it has none
	Problem string // what is wrong with the value
	Remedy  string // what to write instead
	Omitted int    // bytes of the value that Value leaves out
}

// Error names field, value, problem and remedy in one line of valid UTF-8.
func (e *HeaderError) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s %s: %s", e.Field, e.Problem, e.Remedy)
	}
	if e.Omitted > 0 {
		return fmt.Sprintf("%s %q and %d bytes more, %s: %s", e.Field, e.Value, e.Omitted, e.Problem, e.Remedy)
	}
	return fmt.Sprintf("%s %q %s: %s", e.Field, e.Value, e.Problem, e.Remedy)
}

// Unwrap returns [ErrMalformed] or [ErrUnsupported].
func (e *HeaderError) Unwrap() error {
	if e.Code == CodeUnsupported {
		return ErrUnsupported
	}
	return ErrMalformed
}

// maxQuotedBytes bounds what an error repeats of a value, which may be a megabyte.
const maxQuotedBytes = 64

func malformed(field, value, problem, remedy string) *HeaderError {
	e := &HeaderError{Code: CodeMalformed, Field: field, Problem: problem, Remedy: remedy}
	e.quote(value)
	return e
}

func (e *HeaderError) quote(value string) {
	e.Value = value[:quoted(value)]
	e.Omitted = len(value) - len(e.Value)
}

// cut returns a part of a value as an error quotes it: one that is cut ends in dots.
func cut(s string) string {
	if n := quoted(s); n < len(s) {
		return s[:n] + "..."
	}
	return s
}

// quoted returns how many bytes at the front an error repeats. It does not end within a character.
func quoted(s string) int {
	if len(s) <= maxQuotedBytes {
		return len(s)
	}
	n := maxQuotedBytes
	for n > maxQuotedBytes-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return n
}
