package ledger

import "testing"

// A dead-letter topic that takes small records only is tried with each of those that wait, every few seconds.
func TestBounds_allowTriesOfLettersThatAreRefused(t *testing.T) {
	budget := func(topic string) int64 {
		l := wellKept()
		l.fault("limit", topic, 100, 600)
		for i := range 10 {
			l.Deliveries[i].Topic = l.DeadLetters
		}
		for _, b := range l.Bounds() {
			if b.What == "requests that write" {
				return b.Budget
			}
		}
		t.Fatal("there is no bound on requests that write")
		return 0
	}
	if target, letters := budget("orders"), budget("dead"); letters != target+100*10 {
		t.Errorf("%d requests for letters that are refused, want 10 each 5 s more than the %d of a target", letters, target)
	}
}
