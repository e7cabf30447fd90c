package message

import "strconv"

// An Origin is the record of a delay topic from which a message came.
type Origin struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String returns topic/partition/offset, the id of a message whose producer chose
// none and the value of the header delivered-from.
func (o Origin) String() string { return string(o.append(nil)) }

func (o Origin) append(b []byte) []byte {
	b = append(append(b, o.Topic...), '/')
	b = append(strconv.AppendInt(b, int64(o.Partition), 10), '/')
	return strconv.AppendInt(b, o.Offset, 10)
}

// originDigits is the most that stands behind the topic in an origin's text.
const originDigits = len("/-2147483648/-9223372036854775808")
