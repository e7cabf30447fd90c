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
	counts := make(map[raftfsm.Code]int)
	debug := g.log.Enabled(context.Background(), slog.LevelDebug)
	for _, asked := range part.asked {
		answer := answers[asked.place]
		counts[answer.Code]++
		if answer.Code != raftfsm.Scheduled && answer.Code != raftfsm.Superseded {
			without++
		}
		at := []any{"partition", part.id.partition, "offset", asked.offset, "id", asked.id, "seq", answer.Seq}
		if asked.foreign != "" {
			at = append(at, "names_cluster", asked.foreign)
		}
		if answer.Code == raftfsm.Conflict {
			g.conflicts.Add(part.topic, 1, at...)
		}
		if debug {
			g.log.Debug("answered a record with an id", append([]any{"answer", answer.Code, "topic", part.topic, "before", answer.Before}, at...)...)
		}
	}
	for code, n := range counts {
		g.cfg.Count.Answered(code.String(), n)
	}
	return without
}
