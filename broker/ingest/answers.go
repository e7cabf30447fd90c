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

// logsAnswers reports whether each answer is logged.
func (g *Ingest) logsAnswers() bool { return g.log.Enabled(context.Background(), slog.LevelDebug) }

// tellAnswers counts and logs what came of operations with an id of a part that is in the log,
// and returns how many records of it have scheduled no message.
func (g *Ingest) tellAnswers(part packedPart, answers []raftfsm.Answer) (without int) {
	if len(answers) == 0 {
		return 0
	}
	var counts [256]int // by code
	for i := range answers {
		counts[answers[i].Code]++
	}
	without = len(answers) - counts[raftfsm.Scheduled] - counts[raftfsm.Superseded]
	counts[raftfsm.Scheduled] -= part.plain // which are answered so where another operation has an id
	for _, asked := range part.asked {
		if answer := &answers[asked.place]; part.logged || answer.Code == raftfsm.Conflict {
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
