package brokertest

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
)

var (
	seeds = flag.Int("seeds", 8, "how many random scripts to play")
	seed  = flag.Uint64("seed", 0, "play this one only")
)

// Random scripts meet what nobody thought of. A seed gives the same script again,
// not the same schedule of goroutines nor the same elections: repeat it with
// -seed N -count 20.
func TestRandomScripts(t *testing.T) {
	from, to := uint64(1), uint64(*seeds)
	if *seed > 0 {
		from, to = *seed, *seed
	}
	if testing.Short() {
		to = from
	}
	for s := from; s <= to; s++ {
		t.Run(fmt.Sprintf("seed_%d", s), func(t *testing.T) {
			t.Parallel()
			text := draw.Script(s, draw.Any)
			parsed, err := parseScript(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("seed %d:\n%s", s, text)
				}
			})
			parsed.play(t)
		})
	}
}
