package kafka

import (
	"errors"
	"fmt"
	"strings"
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

// A record has the time of the node that sends it: where Kafka refuses that, a clock is to be set, and each message is as good as
// before.
func TestClassify_blamesTheClocksForATimestamp(t *testing.T) {
	err := classify("orders", kerr.InvalidTimestamp)
	if !errors.Is(err, deliver.ErrTargetUnavailable) || errors.Is(err, deliver.ErrRecordRefused) || !errors.Is(err, kerr.InvalidTimestamp) {
		t.Errorf("%v is taken for the fault of a record", err)
	}
	if want := "clocks of this node and of the Kafka broker differ"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say that the %s", err, want)
	}
}
