package client

import "cmp"

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
	CodeReplayed         Code = "replayed"           // 409: the dead letter was replayed before
	CodeInternal         Code = "internal"           // 500
)

// Error returns the words for people.
func (p *Problem) Error() string { return cmp.Or(p.Detail, p.Title, string(p.Code)) }

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
	case CodeTokenMissing, CodeTokenMalformed, CodeTokenUnknown:
		return ErrUnauthenticated
	case CodeNotLeader, CodeUnavailable, CodeRateLimited:
		return ErrUnavailable
	case CodeInDoubt:
		return ErrInDoubt
	case CodeIDsClosed, CodeLevelTooLow, CodeUnsupported:
		return ErrUnsupported
	case CodeReplayed:
		return ErrReplayed
	}
	return nil
}
