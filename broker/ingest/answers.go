package ingest

import (
	"context"
	"log/slog"

	"github.com/carillonmq/carillon/raftfsm"
)

// answersOf returns the answers to the operations of a part, nil where nothing was asked.
func answersOf(result raftfsm.Result, part int) []raftfsm.Answer {
	if part < len(result.Answers) {
		return result.Answers[part]
	}
	return nil
}

// tellAnswers counts and logs what came of operations of a part that is in the log, of each that
// was asked, and returns how many records of it have scheduled no message.
func (g *Ingest) tellAnswers(part packedPart, answers []raftfsm.Answer) (without int) {
	if len(part.asked) == 0 {
		return 0
	}
	var counts [256]int // by code
	debug := g.log.Enabled(context.Background(), slog.LevelDebug)
	for _, asked := range part.asked {
		answer := &answers[asked.place]
		counts[answer.Code]++
		if answer.Code != raftfsm.Scheduled && answer.Code != raftfsm.Superseded {
			without++
		}
		if debug || answer.Code == raftfsm.Conflict {
			g.tellAnswer(part, asked, answer)
		}
	}
	for code, n := range counts {
		if n > 0 {
			g.cfg.Count.Answered(raftfsm.Code(code).String(), n)
		}
	}
	return without
}

// tellAnswer logs one.
func (g *Ingest) tellAnswer(part packedPart, asked asked, answer *raftfsm.Answer) {
	at := []any{"partition", part.id.partition, "offset", asked.offset, "id", asked.id, "seq", answer.Seq}
	if asked.foreign != "" {
		at = append(at, "names_cluster", asked.foreign)
	}
	if answer.Code == raftfsm.Conflict {
		g.conflicts.Add(part.topic, 1, at...)
	}
	g.log.Debug("answered a record with an id", append([]any{"answer", answer.Code, "topic", part.topic, "before", answer.Before}, at...)...)
}
