package kafka

import (
	"errors"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/carillonmq/carillon/broker/deliver"
)

// An answer for each of a hundred thousand missing topics is kept small: its text is written when it is read.
func TestClassify_saysWhatItStandsFor(t *testing.T) {
	cause := fmt.Errorf("produce: %w", kerr.UnknownTopicOrPartition)
	err := classify("orders", cause)
	if want := fmt.Sprintf("topic %q: %v: %v", "orders", deliver.ErrTargetMissing, cause); err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if !errors.Is(err, deliver.ErrTargetMissing) || !errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, deliver.ErrTargetForbidden) {
		t.Errorf("%v is not what it stands for", err)
	}
	if n := testing.AllocsPerRun(100, func() { err = classify("orders", cause) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
