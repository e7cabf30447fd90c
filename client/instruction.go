package client

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// An Instruction is what the deliver-* headers of one record say.
type Instruction struct {
	Verb      Verb
	DueAt     int64  // epoch milliseconds: deliver-at, or the record's timestamp plus deliver-after
	Expires   int64  // epoch milliseconds from which it is not delivered any more; 0: it never expires
	To        string // target topic; "" when the header is absent
	HasKey    bool   // one of two headers gives the key of the delivered record
	Key       string // that key, any bytes; an empty one is a key, too
	Partition int32  // partition of the target; -1 when the header is absent
	ID        string // the caller's id; "" when the header is absent
	If        Condition
	Seq       uint64 // with Exactly
	Cluster   string // with Exactly: the cluster's id in hexadecimal, if deliver-if names it; else ""
}

// Parse reads a record's instruction from its headers and its timestamp in epoch milliseconds,
// which deliver-after counts from (negative: the record has none). Names are lower case; one in
// another case is refused, since its sender meant it. Headers that are not deliver-* say nothing.
// The error is always a *[HeaderError]. Parse is safe for concurrent use.
func Parse(headers []Header, timestamp int64) (Instruction, error) {
	text, err := collect(headers)
	if err != nil {
		return Instruction{}, err
	}
	in := Instruction{To: string(text.to), HasKey: text.key != nil || text.keyBase64 != nil, Key: string(text.key), Partition: -1, ID: string(text.id)}
	if text.cancel != nil {
		in.Verb = VerbCancel
		err = text.readCancel()
	} else {
		err = text.readTimes(&in, timestamp)
	}
	if err == nil {
		err = text.readPlace(&in)
	}
	if err == nil {
		err = checkID(in.ID, in.Verb)
	}
	if err == nil && text.condition != nil {
		err = text.readCondition(&in)
	}
	if err != nil {
		return Instruction{}, err
	}
	return in, nil
}

// readPlace reads where the message goes: topic, key and partition.
func (t *instructionText) readPlace(in *Instruction) (err error) {
	if in.To != "" {
		if err = checkTopic(in.To); err != nil {
			return err
		}
	}
	if t.keyBase64 != nil {
		if in.Key, err = parseKey(string(t.keyBase64), t.key != nil); err != nil {
			return err
		}
	}
	if t.partition != nil {
		in.Partition, err = parsePartition(string(t.partition))
	}
	return err
}

// checkID refuses ids that are too long, that no path can have, or that could be taken for that of a message
// without one.
func checkID(id string, verb Verb) error {
	if len(id) > MaxIDBytes {
		return malformed(HeaderID, id, fmt.Sprintf("has %d bytes", len(id)), fmt.Sprintf("use at most %d", MaxIDBytes))
	}
	if isOrigin(id) {
		return malformed(HeaderID, id, "has the form topic/number/number, by which messages without an id are named",
			"choose another id, such as one with a word in front of it")
	}
	if id == "/" && verb != VerbCancel {
		return malformed(HeaderID, id, "is a slash alone, which the API could not ask for in a path", "choose another id")
	}
	if strings.HasPrefix(id, OwnPrefix) && verb != VerbCancel {
		return malformed(HeaderID, id, "begins with "+OwnPrefix+", as the ids do that Carillon makes", "choose another id")
	}
	return nil
}

// instructionText holds the values of the deliver-* headers; nil is an absent one. Only keyBase64
// may be empty.
type instructionText struct {
	at, after, to, key, keyBase64, partition, id, cancel, condition, expiresAt, expiresAfter []byte
}

// slot returns the place of a header's value, or nil for a name that is not in use.
func (t *instructionText) slot(name string) *[]byte {
	switch name {
	case HeaderAt:
		return &t.at
	case HeaderAfter:
		return &t.after
	case HeaderTo:
		return &t.to
	case HeaderKey:
		return &t.key
	case HeaderKeyBase64:
		return &t.keyBase64
	case HeaderPartition:
		return &t.partition
	case HeaderID:
		return &t.id
	case HeaderCancel:
		return &t.cancel
	case HeaderIf:
		return &t.condition
	case HeaderExpiresAt:
		return &t.expiresAt
	case HeaderExpiresAfter:
		return &t.expiresAfter
	}
	return nil
}

func collect(headers []Header) (text instructionText, err error) {
	for _, h := range headers {
		if !strings.HasPrefix(h.Key, InstructionPrefix) && !inAnotherCase(h.Key) {
			continue
		}
		slot := text.slot(h.Key)
		switch {
		case slot == nil:
			if err := unusable(h); err != nil {
				return text, err
			}
			continue
		case *slot != nil:
			return text, malformed(h.Key, string(h.Value), "is given twice", "write the header once")
		case h.Value == nil:
			return text, malformed(h.Key, "", "is null", "give it a value or leave the header out")
		case len(h.Value) == 0 && h.Key != HeaderKeyBase64: // which then says an empty key
			return text, malformed(h.Key, "", "is empty", "give it a value or leave the header out")
		case !utf8.Valid(h.Value):
			return text, malformed(h.Key, string(h.Value), "is not UTF-8", "write the value as UTF-8 text")
		}
		*slot = h.Value
	}
	return text, nil
}

// inAnotherCase reports whether the name begins as an instruction's does but for its case. It is
// asked of every header of every record, and most differ in the length or the hyphen already.
func inAnotherCase(name string) bool {
	const size = len(InstructionPrefix)
	return len(name) >= size && name[size-1] == '-' && strings.EqualFold(name[:size], InstructionPrefix)
}

// unusable explains a header that looks like an instruction and that no slot takes. It returns nil
// for a header of the application, whose name is no instruction in lower case either.
func unusable(h Header) error {
	if lower := strings.ToLower(h.Key); lower != h.Key && (isSupported(lower) || isReserved(lower)) {
		return malformed(h.Key, string(h.Value), "is not in lower case", "write "+lower)
	}
	if isReserved(h.Key) {
		e := malformed(h.Key, string(h.Value), "is not supported by this version", "send the record without this header")
		e.Code = CodeUnsupported
		return e
	}
	if !strings.HasPrefix(h.Key, InstructionPrefix) {
		return nil
	}
	remedy := "the known ones are " + supportedHeaders
	if near := nearest(h.Key); near != "" {
		if isReserved(near) {
			near += ", which this version does not serve yet"
		}
		remedy = "did you mean " + near + "? T" + remedy[1:]
	}
	return malformed(strings.ToValidUTF8(cut(h.Key), "\uFFFD"), string(h.Value), "is not a header Carillon knows", remedy)
}

// nearest returns the instruction header that the name is most like, or "" when it is like none.
// Both lose what they begin and end with alike; the one with the least left wins, if that is less
// than half.
func nearest(name string) string {
	best, least := "", 1.0/2
	for _, known := range append(strings.Split(supportedHeaders, ", "), reservedHeaders...) {
		a, b := name[len(InstructionPrefix):], known[len(InstructionPrefix):]
		longer := max(len(a), len(b))
		for a != "" && b != "" && a[0] == b[0] {
			a, b = a[1:], b[1:]
		}
		for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
			a, b = a[:len(a)-1], b[:len(b)-1]
		}
		if differs := float64(max(len(a), len(b))) / float64(longer); differs < least {
			best, least = known, differs
		}
	}
	return best
}

// isSupported reports whether the name is that of a header in use.
func isSupported(name string) bool { return new(instructionText).slot(name) != nil }

// isReserved reports whether the name has a meaning that is not offered yet.
func isReserved(name string) bool { return slices.Contains(reservedHeaders, name) }

// maxTopicBytes is Kafka's limit for the length of a topic's name.
const maxTopicBytes = 249

func checkTopic(name string) error {
	const remedy = "use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
	if name == "." || name == ".." {
		return malformed(HeaderTo, name, "is not a topic name", remedy+", but not . or .. alone")
	}
	for _, c := range []byte(name) {
		legal := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			c == '.' || c == '_' || c == '-'
		if !legal {
			return malformed(HeaderTo, name, "is not a topic name", remedy)
		}
	}
	if len(name) > maxTopicBytes {
		return malformed(HeaderTo, name, fmt.Sprintf("has %d characters", len(name)), fmt.Sprintf("use at most %d, as Kafka does for a topic's name", maxTopicBytes))
	}
	return nil
}

// parseKey returns the bytes of deliver-key-base64, which must not stand beside deliver-key.
func parseKey(value string, beside bool) (string, error) {
	if beside {
		return "", malformed(HeaderKeyBase64, value, "is given beside "+HeaderKey, "write one of the two")
	}
	key, err := base64.StdEncoding.Strict().DecodeString(value)
	if err != nil || strings.ContainsAny(value, "\r\n") { // which the decoder passes over
		return "", malformed(HeaderKeyBase64, value, "is not base64", "use A-Z a-z 0-9 + / with padding, such as AAAAKg==, in one line")
	}
	return string(key), nil
}

func parsePartition(value string) (int32, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(value, "+"), 10, 31)
	if err != nil {
		return -1, malformed(HeaderPartition, value, "is not a partition", "use a whole number from 0 to 2147483647")
	}
	return int32(n), nil
}
