package reach

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/carillonmq/carillon/broker/internal/kafkatest"
)

// Once a broker is known to be silent nobody waits for it, until it answers again.
func TestSilentBrokerIsLeftAlone(t *testing.T) {
	kafkatest.InBubble(t, func(t *testing.T, kafka kafkatest.Bubble) {
		network := kafkatest.NewFreezer(kafka.Network.DialContext)
		address := kafka.ListenAddrs()[0]
		hearing := newHearing(network.Dial, slog.New(slog.DiscardHandler))
		defer hearing.Close()
		ask := func() (time.Duration, error) {
			start := time.Now()
			client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.Dialer(hearing.dial))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			_, err = client.SeedBrokers()[0].Request(t.Context(), kmsg.NewPtrMetadataRequest())
			return time.Since(start), err
		}
		for range 3 {
			if took, err := ask(); err != nil || took > 0 {
				t.Fatalf("%v after %v", err, took)
			}
			network.Freeze(address)
			if took, err := ask(); err == nil || took > doubtAfter+leastSilence {
				t.Errorf("frozen: %v after %v", err, took)
			}
			before := network.Dialed(address)
			for range 600 {
				if took, err := ask(); !errors.Is(err, errSilent) || took > 0 {
					t.Fatalf("silent: %v after %v", err, took)
				}
				pass(100 * time.Millisecond)
			}
			if n := network.Dialed(address) - before; n > 12 { // for a sign of life, one each signTimeout
				t.Errorf("%d connections were opened to a silent broker in a minute", n)
			}
			network.Freeze()
			synctest.Wait()
		}
	})
}

// pass lets virtual time go by.
func pass(d time.Duration) { time.Sleep(d) }
