package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
	// ErrForbidden: Kafka does not let this client write to the delay topic, or the token does not let
	// it do what it asks of the API.
	ErrForbidden = errors.New("not authorized")
	// ErrTooLarge: the record exceeds what Kafka, the client or the API allows.
	ErrTooLarge = errors.New("record too large")
	// ErrClosed: the producer, or the client that it has, is closed.
	ErrClosed = errors.New("client is closed")
)

// What the API answers when it refuses. The error is a *[Problem] that says more.
var (
	// ErrTooLate: the message is on its way to its target, or has ended. Nothing was changed.
	ErrTooLate = errors.New("too late")
	// ErrNotFound: no such message, operation or dead letter is known. Nothing was changed.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the condition of the request does not hold. Nothing was changed.
	ErrConflict = errors.New("condition does not hold")
	// ErrKeyReused: the idempotency key came before, with other content. Nothing was changed.
	ErrKeyReused = errors.New("idempotency key was used for something else")
	// ErrReplayed: the dead letter was replayed before, and the request does not say to do it again.
	ErrReplayed = errors.New("was replayed before")
	// ErrBadRequest: the request means nothing or is not allowed. Nothing was changed.
	ErrBadRequest = errors.New("bad request")
	// ErrUnauthenticated: the token is missing, malformed, not known, or not valid (any more).
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrRefused: the cluster does not do it as it is now; the Detail says why. Nothing was changed.
	ErrRefused = errors.New("refused")
	// ErrUnavailable: no node could do it at the moment. Nothing was changed.
	ErrUnavailable = errors.New("unavailable")
	// ErrInDoubt: the request was sent and what came of it is not known. It may have taken effect, also
	// later: ask for the message, or send the same again with its idempotency key.
	ErrInDoubt = errors.New("in doubt")
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

// Error names field, value, problem and remedy in one line of valid UTF-8 that can be printed.
func (e *HeaderError) Error() string {
	field := e.Field
	if strings.ContainsFunc(field, func(r rune) bool { return !strconv.IsPrint(r) || r == utf8.RuneError }) { // a producer's own name
		field = strconv.Quote(field)
	}
	if e.Value == "" {
		return fmt.Sprintf("%s %s: %s", field, e.Problem, e.Remedy)
	}
	if e.Omitted > 0 {
		return fmt.Sprintf("%s %q and %d bytes more, %s: %s", field, e.Value, e.Omitted, e.Problem, e.Remedy)
	}
	return fmt.Sprintf("%s %q %s: %s", field, e.Value, e.Problem, e.Remedy)
}

// OfField returns the problem of a request of the API that has the header as a field, such as deliver_at. Its
// words name other headers as fields, too.
func (e *HeaderError) OfField() *Problem {
	named := *e
	named.Field = fieldOf(named.Field)
	var names []string
	for _, header := range []string{HeaderAt, HeaderAfter, HeaderTo, HeaderKeyBase64, HeaderKey, HeaderPartition, HeaderID, HeaderIf, HeaderExpiresAt, HeaderExpiresAfter} {
		names = append(names, header, fieldOf(header))
	}
	inFields := strings.NewReplacer(names...)
	named.Problem, named.Remedy = inFields.Replace(named.Problem), inFields.Replace(named.Remedy)
	told := &Problem{Code: CodeBadRequest, Field: named.Field, Value: strings.ToValidUTF8(named.Value, "\uFFFD"), Detail: named.Error()}
	if named.Omitted > 0 {
		told.Value += "..."
	}
	return told
}

// fieldOf returns the field that says in a request of the API what the header does.
func fieldOf(header string) string {
	switch header {
	case HeaderAt, HeaderAfter, HeaderTo:
	default:
		header = strings.TrimPrefix(header, InstructionPrefix)
	}
	return strings.ReplaceAll(header, "-", "_")
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

// A Problem is an answer of the API that refuses, as RFC 9457 has it, with the media type
// application/problem+json. As an error it is one of the sentinels of this package, by its Code.
type Problem struct {
	Type   string `json:"type,omitempty"` // a URI; "": about:blank
	Title  string `json:"title"`          // of the status
	Status int    `json:"status"`         // of HTTP
	Code   Code   `json:"code"`           // why, in one word that does not change
	Detail string `json:"detail"`         // why, for people, with what to do about it

	Field   string   `json:"field,omitempty"`        // what is wrong of a request, such as deliver_at
	Value   string   `json:"value,omitempty"`        // what it says, cut if that is long
	Seq     uint64   `json:"seq,omitempty,string"`   // of the message that waits or is on its way; 0: none does
	Outcome *Outcome `json:"outcome,omitempty"`      // with CodeTooLate: what became of the message; none: it is on its way
	Since   int64    `json:"since,omitempty,string"` // with CodeNotFound: what ended before may be forgotten, epoch milliseconds
}

// BadField returns the problem of a request in which a field cannot be as it is; the words say why, behind
// field and value, and what to write instead. A long value is cut; "": nothing is there.
func BadField(field, value, words string) *Problem {
	p := &Problem{Code: CodeBadRequest, Field: field, Value: strings.ToValidUTF8(cut(value), "\uFFFD"), Detail: field + " " + words}
	if value != "" {
		p.Detail = fmt.Sprintf("%s %q %s", field, p.Value, words)
	}
	return p
}

// Codes of a [Problem]. They do not change. [CodeMalformed] and [CodeUnsupported] may come as well.
const (
	CodeTooLate          Code = "too-late"           // 409: the message is on its way, or has ended
	CodeConflict         Code = "conflict"           // 412: the condition does not hold; Seq is what waits
	CodeNotFound         Code = "not-found"          // 404: nothing is known of it
	CodeKeyReused        Code = "key-reused"         // 409: the idempotency key came before with other content
	CodeBadRequest       Code = "bad-request"        // 400: Field, Value and Detail say what is wrong
	CodeTargetNotAllowed Code = "target-not-allowed" // 400: the configuration does not allow the target
	CodeTooLarge         Code = "too-large"          // 413: the message or the body
	CodeForbidden        Code = "forbidden"          // 403: the token does not reach so far
	CodeTokenMissing     Code = "token-missing"      // 401
	CodeTokenMalformed   Code = "token-malformed"    // 401
	CodeTokenUnknown     Code = "token-unknown"      // 401
	CodeNotLeader        Code = "not-leader"         // 503: nothing was done; ask another node
	CodeUnavailable      Code = "unavailable"        // 503: nothing was done; ask again
	CodeRateLimited      Code = "rate-limited"       // 429: nothing was done; ask again later
	CodeInDoubt          Code = "in-doubt"           // 504: it may have been done: ask for the id
	CodeIDsClosed        Code = "ids-not-open"       // 409: below feature level 3, or shortly after
	CodeLevelTooLow      Code = "level-too-low"      // 409: `carillon cluster raise` first
	CodeRefused          Code = "refused"            // 409: the cluster does not do it, Detail says why
	CodeReplayed         Code = "replayed"           // 409: the dead letter was replayed before
	CodeInternal         Code = "internal"           // 500
)

// Error returns the words for people.
func (p *Problem) Error() string { return cmp.Or(p.Detail, p.Title, string(p.Code)) }

// Status returns the status of HTTP that goes with the code: that of an error of the node's, 500, with one
// that this version does not know.
func (c Code) Status() int {
	switch c {
	case CodeBadRequest, CodeTargetNotAllowed, CodeMalformed, CodeUnsupported:
		return http.StatusBadRequest
	case CodeForbidden:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeTooLate, CodeKeyReused, CodeReplayed, CodeRefused, CodeIDsClosed, CodeLevelTooLow:
		return http.StatusConflict
	case CodeConflict:
		return http.StatusPreconditionFailed
	case CodeTooLarge:
		return http.StatusRequestEntityTooLarge
	case CodeRateLimited:
		return http.StatusTooManyRequests
	case CodeNotLeader, CodeUnavailable:
		return http.StatusServiceUnavailable
	case CodeInDoubt:
		return http.StatusGatewayTimeout
	}
	if strings.HasPrefix(string(c), tokenCodes) {
		return http.StatusUnauthorized
	}
	return http.StatusInternalServerError
}

// tokenCodes begin the codes about tokens: there are more than are named here, as of tokens of an identity
// provider.
const tokenCodes = "token-"

// Unwrap returns the sentinel that the Code stands for, nil for one that this version does not know.
func (p *Problem) Unwrap() error {
	switch p.Code {
	case CodeTooLate:
		return ErrTooLate
	case CodeConflict:
		return ErrConflict
	case CodeNotFound:
		return ErrNotFound
	case CodeKeyReused:
		return ErrKeyReused
	case CodeBadRequest, CodeTargetNotAllowed:
		return ErrBadRequest
	case CodeMalformed:
		return ErrMalformed
	case CodeTooLarge:
		return ErrTooLarge
	case CodeForbidden:
		return ErrForbidden
	case CodeNotLeader, CodeUnavailable, CodeRateLimited:
		return ErrUnavailable
	case CodeInDoubt:
		return ErrInDoubt
	case CodeIDsClosed, CodeLevelTooLow, CodeUnsupported:
		return ErrUnsupported
	case CodeReplayed:
		return ErrReplayed
	case CodeRefused:
		return ErrRefused
	}
	if strings.HasPrefix(string(p.Code), tokenCodes) {
		return ErrUnauthenticated
	}
	return nil
}
