package ingest

import (
	"errors"
	"testing"
	"time"

	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

func TestFind_believesNoLogThatIsShorterInTheSameEpoch(t *testing.T) {
	const notAsked = -1
	told := func(earliest, latest int64, epoch int32, readEnd int64) OffsetsAnswer {
		return OffsetsAnswer{Earliest: earliest, Latest: latest, Epoch: epoch, ReadEnd: readEnd}
	}
	for name, test := range map[string]struct {
		epoch  int32 // of the position, which is at 100
		answer OffsetsAnswer
		want   finding
	}{
		"all there":                     {4, told(0, 120, 4, notAsked), finding{}},
		"deleted":                       {4, told(110, 120, 4, notAsked), finding{deleted, 110}},
		"shorter in the same epoch":     {4, told(0, 90, 4, notAsked), finding{}},
		"elected, all there":            {4, told(0, 100, 5, 100), finding{}},
		"elected uncleanly":             {4, told(0, 90, 5, 80), finding{replaced, 80}},
		"and grown past the position":   {4, told(0, 200, 5, 80), finding{replaced, 80}},
		"another log from its first":    {4, told(0, 200, 5, 0), finding{replaced, 0}},
		"and its beginning was deleted": {4, told(90, 200, 5, 80), finding{replaced, 90}},
		"all that was read is deleted":  {4, told(100, 120, 5, 0), finding{}},
		"epoch not known to the leader": {4, told(0, 90, 5, -1), finding{shortened, 90}},
		"nothing read yet, shorter":     {-1, told(0, 90, 5, notAsked), finding{shortened, 90}},
		"nothing read yet, all there":   {-1, told(0, 100, 5, notAsked), finding{}},
	} {
		asked := test.epoch >= 0 && test.epoch < test.answer.Epoch
		if got := find(storage.Position{Next: 100, Epoch: test.epoch}, test.answer, asked); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// A broker that led before another one was elected, or before what was read was written, answers from the past for
// as long as it does not know: its word counts for nothing, however long it is repeated.
func TestJudge_believesNoLeaderOfAnEarlierEpoch(t *testing.T) {
	id := partitionID{TopicID{1}, 0}
	read := storage.Position{Topic: "orders.delay", TopicID: id.topic, Next: 100, Epoch: 4}
	for name, test := range map[string]struct {
		leads  int32 // the epoch that Kafka names, in which somebody leads
		answer OffsetsAnswer
		reads  error // why it is not read
		want   int64 // where reading goes on; -1: where it was
	}{
		"deleted, says who leads":                  {6, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 6, ReadEnd: 100}, errors.New("out of range"), 110},
		"deleted, and it is read":                  {6, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 6, ReadEnd: 100}, nil, -1},
		"deleted, and nobody has the topic":        {6, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 6, ReadEnd: 100}, ErrSourceMissing, -1},
		"deleted, says who led":                    {6, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 5, ReadEnd: 100}, errors.New("out of range"), -1},
		"deleted, says who led before it was read": {3, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 3, ReadEnd: -1}, errors.New("out of range"), -1},
		"replaced, says who leads":                 {6, OffsetsAnswer{Latest: 90, Epoch: 6, ReadEnd: 80}, nil, 80},
		"replaced, says who led":                   {6, OffsetsAnswer{Latest: 90, Epoch: 5, ReadEnd: 80}, nil, -1},
	} {
		d := &discovery{}
		p := &delayPartition{SourceLeader: SourceLeader{Epoch: test.leads}, intactAt: -1}
		found := []foundPartition{{OffsetsQuestion: OffsetsQuestion{Topic: read.Topic, SourceLeader: p.SourceLeader, ReadEpoch: read.Epoch}, id: id, partition: p, failure: test.reads, answer: test.answer}}
		got, now := int64(-1), time.Now()
		for range 10 {
			for _, m := range d.judge(found, storage.State{Surveyed: true, Positions: []storage.Position{read}}, now) {
				got = m.Next
			}
			now = now.Add(time.Second)
		}
		if got != test.want {
			t.Errorf("%s: reading goes on at %d, want %d", name, got, test.want)
		}
	}
}

// Offsets are asked by the name, and one who has not heard that the topic was created again tells those of the topic before.
func TestJudge_readsATopicThatWasCreatedAgainFromItsFirstRecord(t *testing.T) {
	before := storage.Position{Topic: "orders.delay", TopicID: TopicID{1}, Next: 100, Epoch: 4}
	for name, test := range map[string]struct {
		topic     string
		id        TopicID
		partition int32
		surveyed  bool
		want      storage.Position
	}{
		"created again":                 {before.Topic, TopicID{2}, 0, true, storage.Position{Next: 0, Epoch: -1}},
		"created again before a survey": {before.Topic, TopicID{2}, 0, false, storage.Position{Next: 70, Epoch: 4}},
		"a partition was added":         {before.Topic, before.TopicID, 1, true, storage.Position{Next: 70, Epoch: 4}},
		"another topic":                 {"bills.delay", TopicID{2}, 0, true, storage.Position{Next: 70, Epoch: 4}},
	} {
		d := &discovery{}
		p := &delayPartition{SourceLeader: SourceLeader{Partition: test.partition}, intactAt: -1}
		found := []foundPartition{{OffsetsQuestion: OffsetsQuestion{Topic: test.topic, SourceLeader: p.SourceLeader, ReadEpoch: -1},
			id: partitionID{test.id, test.partition}, partition: p, answer: OffsetsAnswer{Earliest: 70, Latest: 70, Epoch: 4}}}
		moves := d.judge(found, storage.State{Surveyed: test.surveyed, Positions: []storage.Position{before}}, time.Now())
		test.want.Topic, test.want.TopicID, test.want.Partition = test.topic, test.id, test.partition
		if len(moves) != 1 || moves[0].Position != test.want || moves[0].From != raftfsm.FromAbsent {
			t.Errorf("%s: %+v, want a new position %+v", name, moves, test.want)
		}
	}
}

// What was read before a leader was elected uncleanly may be taken in after its log was found to have all that was taken in
// by then. So it is asked again where the epoch of what was read ended.
func TestLook_asksAgainForTheEndOfAnEpochOfWhichMoreIsTakenIn(t *testing.T) {
	id := partitionID{TopicID{1}, 0}
	at := storage.Position{Topic: "orders.delay", TopicID: id.topic, Next: 80, Epoch: 4}
	p := &delayPartition{SourceLeader: SourceLeader{Epoch: 5}, intactAt: -1}
	d := &discovery{}
	asks := func() bool { return p.asksEnd(at) }
	if !asks() {
		t.Fatal("the new leader is not asked where the epoch ended")
	}
	found := []foundPartition{{OffsetsQuestion: OffsetsQuestion{Topic: at.Topic, SourceLeader: p.SourceLeader, ReadEpoch: at.Epoch}, id: id, partition: p,
		answer: OffsetsAnswer{Latest: 80, Epoch: 5, ReadEnd: 80}}}
	d.judge(found, storage.State{Surveyed: true, Positions: []storage.Position{at}}, time.Now())
	if asks() {
		t.Error("it is asked again though nothing was taken in since")
	}
	at.Next = 90
	if !asks() {
		t.Error("it is not asked again though more of that epoch was taken in")
	}
}

func TestDoubt_isCertainOnlyWhenAllAnswersAgree(t *testing.T) {
	is := func(kind findingKind, next int64) finding { return finding{kind, next} }
	for name, test := range map[string]struct {
		answers []finding // a second apart
		want    int64     // where reading goes on in the end; -1: not certain
	}{
		"one":                    {[]finding{is(replaced, 5)}, -1},
		"for a while":            {[]finding{is(replaced, 5), is(replaced, 5), is(replaced, 5), is(replaced, 5)}, 5},
		"contradicted":           {[]finding{is(replaced, 5), is(replaced, 5), is(intact, 0), is(replaced, 5)}, -1},
		"another end":            {[]finding{is(replaced, 5), is(replaced, 5), is(replaced, 4), is(replaced, 5)}, -1},
		"deletion goes on":       {[]finding{is(deleted, 5), is(deleted, 6), is(deleted, 6), is(deleted, 9)}, 9},
		"deletion undone":        {[]finding{is(deleted, 9), is(deleted, 9), is(deleted, 9), is(deleted, 5)}, -1},
		"written to meanwhile":   {[]finding{is(shortened, 5), is(shortened, 6), is(shortened, 7), is(shortened, 9)}, 5},
		"one reason for another": {[]finding{is(shortened, 5), is(shortened, 5), is(shortened, 5), is(replaced, 5)}, -1},
	} {
		var d doubt
		got, now := int64(-1), time.Time{}
		for i, f := range test.answers {
			if d.hear(f, now.Add(time.Duration(i)*time.Second)) {
				got = d.next
			}
		}
		if got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

func TestPlaces_aLostReadingEndsOnce(t *testing.T) {
	p, id := newPlaces(), partitionID{partition: 3}
	first := p.begin(id)
	if !p.counts(id, first) || !p.lose(id, first) || p.counts(id, first) || p.lose(id, first) {
		t.Error("a reading counts until it is lost")
	}
	second := p.begin(id)
	if p.lose(id, first) || !p.counts(id, second) || p.counts(id, first) {
		t.Error("what the first reading still brings concerns the second one")
	}
}
