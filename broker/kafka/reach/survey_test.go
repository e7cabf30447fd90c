package reach

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// A survey tells the brokers that answer from those that do not, whichever of them is asked which there are.
func TestSurvey(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		network := kafkatest.NewFreezer(kafka.Network.DialContext)
		addresses := kafka.ListenAddrs()
		c := configOf(t, kafka)
		c.Dial = network.Dial
		for name, frozen := range map[string][]int32{"none": nil, "first": {0}, "second": {1}, "all but the last": {0, 1}} {
			var silent []string
			for _, id := range frozen {
				silent = append(silent, addresses[id])
			}
			network.Freeze(silent...)
			start := time.Now()
			reached, unreached, err := c.Survey(t.Context())
			slices.Sort(unreached)
			if err != nil || len(reached) != len(addresses)-len(frozen) || !slices.Equal(unreached, frozen) {
				t.Errorf("%s frozen: %v answer and %v do not (%v)", name, reached, unreached, err)
			}
			if took := time.Since(start); took > surveyPatience || len(frozen) == 0 && took > 0 {
				t.Errorf("%s frozen: it took %v", name, took)
			}
		}
		network.Freeze(addresses...)
		if reached, _, err := c.Survey(t.Context()); err == nil {
			t.Errorf("all frozen: %v answer", reached)
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := c.Survey(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("who has gone is told %v", err)
		}
	}, kfake.NumBrokers(3), kfake.Ports(9092, 9093, 9094))
}
