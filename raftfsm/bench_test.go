package raftfsm

import (
	"testing"

	"github.com/carillonmq/carillon/storage"
	"github.com/hashicorp/raft"
)

// One command of a thousand messages, decoded and applied; what it accepted ends untimed.
func BenchmarkApply(b *testing.B) {
	const count = 1000
	for _, form := range []string{"entries", "operations", "operations with ids"} {
		b.Run(form, func(b *testing.B) {
			f := newTestIDs(b)
			b.ReportAllocs()
			from := int64(0)
			for b.Loop() {
				b.StopTimer()
				data := benchIngest(form, from, count).append(nil)
				b.StartTimer()
				res, ok := f.Apply(&raft.Log{Index: f.applied + 1, Term: 1, Data: data}).(Result)
				b.StopTimer()
				if !ok || res.Accepted != count {
					b.Fatalf("%+v, %v", res, f.broken)
				}
				from += count
				apply(b, f, Ack{Runs: []storage.SeqRun{{First: res.FirstSeq, Last: res.FirstSeq + count - 1}}})
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*count), "ns/message")
		})
	}
}
