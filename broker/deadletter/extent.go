package deadletter

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/carillonmq/carillon/broker/order"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage/codec"
)

// An Extent is what lies in the dead-letter topics at one time, partition by partition. What comes later is
// not in it.
type Extent []Part

// A Part is the records of one partition, From and up to, not including, To.
type Part struct {
	Topic    string
	TopicID  [16]byte
	Number   int32
	From, To int64
}

// String returns topic/partition.
func (p *Part) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Number) }

// mostExtent bounds an extent as text, in bytes: those who walk over it keep it in the replicated state. It has
// room for some 200 partitions.
const mostExtent = 2 << 10

// Extent returns what lies in the dead-letter topics now and was written at the time or later, epoch
// milliseconds; 0: whenever. Its errors are ErrKafka and a *client.Problem about since.
func (d *Desk) Extent(ctx context.Context, since int64) (Extent, error) {
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	partitions, err := d.kafka.Partitions(ctx, d.topics, since)
	if err != nil {
		return nil, inTime(ctx, "look for dead letters", err)
	}
	var e Extent
	for _, p := range partitions {
		if p.First < p.Next {
			e = append(e, Part{p.Topic, p.TopicID, p.Number, p.First, p.Next})
		}
	}
	if text, _ := e.MarshalText(); len(text) > mostExtent {
		return nil, client.BadField("from", "", fmt.Sprintf("is missing, or too early: dead letters lie in %d partitions, which are too many for one operation: give a later one, which leaves some out, or replay them one by one", len(e)))
	}
	return e, nil
}

// MarshalText writes the extent:
//
//	| n | n x (topic, topic id 16, | n | n x (number, from, to - from)) |     base64
//
// where numbers are uvarints.
func (e Extent) MarshalText() ([]byte, error) {
	var topics []Extent
	for i := range e {
		if i == 0 || e[i].TopicID != e[i-1].TopicID {
			topics = append(topics, nil)
		}
		last := &topics[len(topics)-1]
		*last = append(*last, e[i])
	}
	b := binary.AppendUvarint(nil, uint64(len(topics)))
	for _, of := range topics {
		b = append(codec.AppendString(b, of[0].Topic), of[0].TopicID[:]...)
		b = binary.AppendUvarint(b, uint64(len(of)))
		for _, p := range of {
			b = binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(b, uint64(p.Number)), uint64(p.From)), uint64(p.To-p.From))
		}
	}
	return base64.RawStdEncoding.AppendEncode(nil, b), nil
}

// UnmarshalText reads what MarshalText wrote.
func (e *Extent) UnmarshalText(text []byte) error {
	b, err := base64.RawStdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("read the extent of dead letters: %w", err)
	}
	*e = nil
	d := codec.NewDecoder(b)
	for range d.CountOf(18) {
		topic, id := d.Text(), d.ID()
		for range d.CountOf(3) {
			p := Part{Topic: topic, TopicID: id, Number: int32(d.Uvarint()), From: int64(d.Uvarint())}
			p.To = p.From + int64(d.Uvarint())
			*e = append(*e, p)
		}
	}
	if err := d.Finish("extent of dead letters"); err != nil {
		return fmt.Errorf("read the extent of dead letters: %w", err)
	}
	return nil
}

// A Window is what was read of a part: the records From and up to, not including, To, of which those before
// First are gone.
type Window struct {
	From, First, To int64
	Found           []Found
}

// A Found is a dead letter with what it takes to replay it. Of a foreign one only Told counts.
type Found struct {
	Told   client.DeadLetter // without its payload
	Letter order.Letter
}

const (
	// confirmAfter is how long all answers of Kafka must agree that a topic is another one by now.
	confirmAfter = 3 * time.Second
	// mostWindow bounds the offsets of a window, mostWindowBytes the bytes of its records but for the last one.
	mostWindow      = 1024
	mostWindowBytes = 4 << 20
)

// ReadOn reads the records of the part from the offset on, which is in it, as many as a window takes: one at
// least, or all that there are. It errs with ErrKafka while Kafka does not have the part as it was, since a
// topic that cannot be seen is not gone. One that was deleted and made anew is, as Kafka says for some seconds: a
// broker that was frozen may tell of the topic that was there before.
func (d *Desk) ReadOn(ctx context.Context, part *Part, from int64) (Window, error) {
	ctx, leave, err := d.enter(ctx)
	if err != nil {
		return Window{}, err
	}
	defer leave()
	partitions, err := d.kafka.Partitions(ctx, []string{part.Topic}, 0)
	for begin := time.Now(); err == nil && len(partitions) > 0 && partitions[0].TopicID != part.TopicID; {
		if time.Since(begin) >= confirmAfter {
			return Window{From: from, First: part.To, To: part.To}, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
		partitions, err = d.kafka.Partitions(ctx, []string{part.Topic}, 0)
	}
	if err != nil {
		return Window{}, inTime(ctx, "look for "+part.String(), err)
	}
	i := slices.IndexFunc(partitions, func(p Partition) bool { return p.Number == part.Number })
	switch {
	case i < 0:
		return Window{}, fmt.Errorf("look for %s: %w: it does not exist", part, ErrKafka)
	case partitions[i].Next < part.To:
		return Window{}, fmt.Errorf("look for %s: %w: it ends at offset %d and did end at %d: a replica that is behind leads it, or records were lost", part, ErrKafka, partitions[i].Next, part.To)
	}
	p := &partitions[i]
	first := min(max(from, p.First), part.To)
	w := Window{From: from, First: first, To: min(first+mostWindow, part.To)}
	if first == w.To {
		return w, nil
	}
	stretches, err := d.kafka.Read(ctx, []Span{{p, first, w.To}}, mostWindowBytes)
	if err != nil {
		return Window{}, inTime(ctx, fmt.Sprintf("read %s from offset %d on", part, first), err)
	}
	for j := range stretches[0].Records {
		w.Found = append(w.Found, d.found(p, &stretches[0].Records[j]))
	}
	if !stretches[0].Whole {
		w.To = stretches[0].Records[len(stretches[0].Records)-1].Offset + 1
	}
	return w, nil
}

func (d *Desk) found(p *Partition, r *Record) Found {
	f := Found{Told: tell(p, r, d.targetOf)}
	if !f.Told.Foreign {
		f.Letter = letterOf(p, r)
	}
	return f
}

// letterOf returns what it takes to replay the record, which is a dead letter.
func letterOf(p *Partition, r *Record) order.Letter {
	origin, _ := r.origin()
	return order.Letter{
		Place:  raftfsm.Replay{At: p.marks(), Offset: r.Offset, First: p.First},
		Origin: origin, Key: r.Key, Value: r.Value, Headers: r.Headers,
	}
}

// IsReplayed reports whether the dead letter is marked as replayed, as far as this node has applied the log.
func (d *Desk) IsReplayed(l *Found) bool {
	return d.store.Replayed(l.Letter.Place.At, l.Letter.Place.Offset)
}
