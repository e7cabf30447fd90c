package ingest

import (
	"testing"
	"time"

	"github.com/carillonmq/carillon/storage"
)

func TestFind_believesNoLogThatIsShorterInTheSameEpoch(t *testing.T) {
	const notAsked = -1
	told := func(earliest, latest int64, epoch int32, readEnd int64) OffsetsAnswer {
		return OffsetsAnswer{Earliest: earliest, Latest: latest, End: latest, Epoch: epoch, ReadEnd: readEnd}
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
		"begun in an open transaction":  {4, OffsetsAnswer{Latest: 90, End: 110, Epoch: 5, ReadEnd: -1}, finding{}},
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
		fails  bool  // it cannot be read
		want   int64 // where reading goes on; -1: where it was
	}{
		"deleted, says who leads":                  {6, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 6, ReadEnd: 100}, true, 110},
		"deleted, and it is read":                  {6, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 6, ReadEnd: 100}, false, -1},
		"deleted, says who led":                    {6, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 5, ReadEnd: 100}, true, -1},
		"deleted, says who led before it was read": {3, OffsetsAnswer{Earliest: 110, Latest: 120, Epoch: 3, ReadEnd: -1}, true, -1},
		"replaced, says who leads":                 {6, OffsetsAnswer{Latest: 90, Epoch: 6, ReadEnd: 80}, false, 80},
		"replaced, says who led":                   {6, OffsetsAnswer{Latest: 90, Epoch: 5, ReadEnd: 80}, false, -1},
	} {
		d := &discovery{}
		p := &delayPartition{SourceLeader: SourceLeader{Epoch: test.leads}, intactAt: -1}
		found := []foundPartition{{OffsetsQuestion: OffsetsQuestion{Topic: read.Topic, TopicID: id.topic, SourceLeader: p.SourceLeader, ReadEpoch: read.Epoch}, id: id, partition: p, failing: test.fails, answer: test.answer}}
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
	found := []foundPartition{{OffsetsQuestion: OffsetsQuestion{Topic: at.Topic, TopicID: id.topic, SourceLeader: p.SourceLeader, ReadEpoch: at.Epoch}, id: id, partition: p,
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
