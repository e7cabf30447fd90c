package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/carillonmq/carillon/broker/config"
	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/raftfsm"
	"github.com/carillonmq/carillon/storage"
)

// logLines keeps what is logged as lines without their time.
type logLines struct{ bytes.Buffer }

func (l *logLines) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// with returns the lines that have the text.
func (l *logLines) with(text string) (lines []string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, text) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestDigest_tellsAllInALineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines logLines
		d := newDigest(lines.logger(), "refused")
		d.add("t0", 2, "offset", 0)
		time.Sleep(time.Millisecond / 2) // so that the others come between the lines
		for i := 1; i < 3000; i++ {
			time.Sleep(time.Millisecond)
			d.add(fmt.Sprint("t", i%100), 2, "offset", i)
		}
		time.Sleep(time.Minute)
		d.add("later", 1)
		d.add("last", 1)
		d.close()
		want := []string{
			"level=WARN msg=refused records=2 topics=1 topic=t0 offset=0",
			"level=WARN msg=refused records=1998 topics=100 topic=t99 offset=999",
			"level=WARN msg=refused records=2000 topics=100 topic=t99 offset=1999",
			"level=WARN msg=refused records=2000 topics=100 topic=t99 offset=2999",
			"level=WARN msg=refused records=1 topics=1 topic=later",
			"level=WARN msg=refused records=1 topics=1 topic=last",
		}
		if diff := cmp.Diff(want, lines.with("refused")); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestCondemn_logsALineASecondForAllTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var lines logLines
		b.condemned.log = lines.logger()
		var due []dueMessage
		for i := range 300 {
			due = append(due, b.accept(fmt.Sprint("customer-", i), 2, nil)...)
		}
		b.hand(due)
		b.feed(due, 2*testTimeout)
		b.stop()
		var told int
		for _, line := range lines.with("dead-lettering messages") {
			var records int
			if _, err := fmt.Sscanf(line[strings.Index(line, "records="):], "records=%d", &records); err != nil {
				t.Fatal(err)
			}
			told += records
		}
		if n := len(lines.with("dead-lettering messages")); told != len(due) || len(b.log.dead) != told || n > 30 {
			t.Errorf("%d lines tell of %d dead letters, there are %d", n, told, len(b.log.dead))
		}
	})
}

func TestIngest_logsAndCountsWhatItRefuses(t *testing.T) {
	var lines logLines
	counts := make(refusedCount)
	g := newIngest(ingestConfig{Config: config.Default(), Count: counts, Store: atLevel(storage.LevelTwo), Now: time.Now, Logger: lines.logger()})
	var parts []packedPart
	pack := packer{propose: func(_ raftfsm.Ingest, packed []packedPart) error {
		parts = packed
		return nil
	}}
	batch := Batch{Topic: "orders.delay", Partition: 3, From: 7, Next: 11, Arrivals: []Arrival{
		{Offset: 7, Instruction: Instruction{Partition: -1}},
		{Offset: 8, Problem: &message.Problem{Code: message.CodeMalformed, Message: "deliver-at \"soon\""}},
		{Offset: 9, Problem: &message.Problem{Code: message.CodeMalformed, Message: "deliver-at \"later\""}},
		{Offset: 10, Problem: &message.Problem{Code: message.CodeUnsupported, Message: "deliver-cron"}},
	}}
	if err := g.pack(&pack, batch); err != nil {
		t.Fatal(err)
	}
	if err := pack.flush(testNow); err != nil {
		t.Fatal(err)
	}
	g.tellRefused(parts[0])
	g.refused.close()
	want := []string{`level=WARN msg="records refused, they go to the dead-letter topic" component=ingest records=3 topics=1 topic=orders.delay partition=3 offset=10 code=unsupported reason=deliver-cron`}
	if diff := cmp.Diff(want, lines.with("refused")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(refusedCount{message.CodeMalformed: 2, message.CodeUnsupported: 1}, counts); diff != "" || parts[0].messages != 4 {
		t.Errorf("of %d records, refused -want +got:\n%s", parts[0].messages, diff)
	}
}

// A refusedCount is an ingestCount.
type refusedCount map[string]int

func (c refusedCount) Accepted(int)                       {}
func (c refusedCount) SourceLost(int64)                   {}
func (c refusedCount) Rejected(code string, messages int) { c[code] += messages }
