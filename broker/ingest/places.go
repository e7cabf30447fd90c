package ingest

import "sync"

// places knows which reading of each partition counts. The discovery begins readings;
// take and settle run concurrently and find that one has lost its place in the log.
//
// A reading is wrong when the stored position is not where its next part begins: the
// position was moved, since Kafka has lost records, or another leader has ingested. That
// concerns its partition alone:
//
//	settle: part not applied --> lose     from here on take drops what still comes of it
//	discovery, next look:        begin    then the stored position is read, then assigned
//
// A command of the old reading that is still in flight may be applied after that. Then
// the first part of the new reading does not fit, which loses it in turn: no record is
// taken in twice, whatever the order, since each part is a compare-and-set.
type places struct {
	mu      sync.Mutex
	current map[partitionID]place
}

type place struct {
	round uint64
	lost  bool
}

type partitionID struct {
	topic     TopicID
	partition int32
}

func newPlaces() *places { return &places{current: make(map[partitionID]place)} }

// begin starts another reading of the partition and returns its round.
func (p *places) begin(id partitionID) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	round := p.current[id].round + 1
	p.current[id] = place{round: round}
	return round
}

// round returns the reading that counts; ok is false when a new one has to begin.
func (p *places) round(id partitionID) (round uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.current[id]
	return at.round, ok && !at.lost
}

// counts reports whether what that reading gave may be proposed.
func (p *places) counts(id partitionID, round uint64) bool {
	at, ok := p.round(id)
	return ok && at == round
}

// lose ends the reading, unless another one has begun already; it reports whether it did.
func (p *places) lose(id partitionID, round uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.current[id]
	if at.round != round || at.lost {
		return false
	}
	p.current[id] = place{round: round, lost: true}
	return true
}
