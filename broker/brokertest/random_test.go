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

// A drawn script is one seed at one scale.
type drawn struct {
	seed  uint64
	scale draw.Profile
}

// fixed are played by everybody: small ones that have most of what scripts can say between them, of minutes and of
// days. Whoever changes what is drawn looks whether they still do.
func fixed() []drawn {
	return []drawn{{546, draw.TrueScale}, {121, draw.TrueScale}, {429, draw.TrueScale}, {105, draw.TrueScale}, {2, draw.Stretched}, {6, draw.Stretched}}
}

// Random scripts meet what nobody thought of. A seed gives the same script again,
// not the same schedule of goroutines nor the same elections: repeat it with
// -seed N -count 20.
func TestRandomScripts(t *testing.T) {
	chosen := fixed()
	scale, err := draw.ParseProfile(*profile)
	if err != nil {
		t.Fatalf("-profile: %v", err)
	}
	switch {
	case *seed > 0:
		chosen = []drawn{{*seed, scale}}
	case *seeds > 0:
		chosen = nil
		for s := range uint64(*seeds) {
			chosen = append(chosen, drawn{s + 1, scale})
		}
	case testing.Short():
		chosen = chosen[:1]
	}
	for _, d := range chosen {
		t.Run(fmt.Sprintf("seed_%d_%s", d.seed, d.scale), func(t *testing.T) {
			t.Parallel()
			text := draw.Script(d.seed, d.scale)
			parsed, err := parseScript(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("seed %d:\n%s", d.seed, text)
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
