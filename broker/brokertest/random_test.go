package brokertest

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/broker/brokertest/draw"
)

var (
	seeds = flag.Int("seeds", 0, "how many random scripts to play; 0: the fixed ones")
	seed  = flag.Uint64("seed", 0, "play this one only")

	profile = flag.String("profile", string(draw.Any), "the scale of time of -seed and -seeds: any, true, stretched or long")
)

// fixedSeeds are played by everybody: small ones, at true scale, that have most of what scripts can say
// between them. Whoever changes what is drawn looks whether they still do.
func fixedSeeds() []uint64 { return []uint64{546, 121, 429, 105} }

// Random scripts meet what nobody thought of. A seed gives the same script again,
// not the same schedule of goroutines nor the same elections: repeat it with
// -seed N -count 20.
func TestRandomScripts(t *testing.T) {
	chosen := fixedSeeds()
	scale, err := draw.ParseProfile(*profile)
	if err != nil {
		t.Fatalf("-profile: %v", err)
	}
	switch {
	case *seed > 0:
		chosen = []uint64{*seed}
	case *seeds > 0:
		chosen = nil
		for s := range uint64(*seeds) {
			chosen = append(chosen, s+1)
		}
	case testing.Short():
		scale, chosen = draw.TrueScale, chosen[:1]
	default:
		scale = draw.TrueScale
	}
	for _, s := range chosen {
		t.Run(fmt.Sprintf("seed_%d", s), func(t *testing.T) {
			t.Parallel()
			text := draw.Script(s, scale)
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

// What is drawn can be played, whatever the seed.
func TestDrawnScripts_parse(t *testing.T) {
	for seed := range uint64(100) {
		for _, profile := range []draw.Profile{draw.Any, draw.TrueScale, draw.Stretched, draw.Long} {
			text := draw.Script(seed, profile)
			if _, err := parseScript(strings.NewReader(text)); err != nil {
				t.Fatalf("seed %d, profile %s: %v\n%s", seed, profile, err, text)
			}
		}
	}
}
