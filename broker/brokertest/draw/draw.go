// Package draw makes scripts for broker/brokertest out of seeds. It is pure: the same seed gives
// the same script, and it knows the language of the scripts and nothing of what plays them.
package draw

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A Profile says on which scale of time a script plays.
type Profile uint8

const (
	// Any leaves the scale to the seed.
	Any Profile = iota
	// TrueScale has the heartbeats of the product, and takes minutes of virtual time.
	TrueScale
	// Stretched has heartbeats of 10 to 60 s, and takes hours to years.
	Stretched
)

// Script returns the script of the seed.
func Script(seed uint64, _ Profile) string {
	return randomScript(rand.New(rand.NewPCG(seed, 0)))
}

// randomScript has traffic all the time and a fault every few seconds, each of which
// ends before the next one begins, so that a majority always comes back.
func randomScript(r *rand.Rand) string {
	var b strings.Builder
	line := func(at int, format string, args ...any) {
		fmt.Fprintf(&b, "at %ds "+format+"\n", append([]any{at}, args...)...)
	}
	old := r.IntN(2) == 0 // half of them begin at the oldest feature level, and are raised at the end
	b.WriteString("cluster nodes=3 flush=32768 missing_target_timeout=10m slack=1s" + map[bool]string{true: " program=1"}[old] + "\n")
	line(0, "create orders.delay partitions=%d", 1+r.IntN(3))
	line(0, "create orders partitions=%d", 1+r.IntN(3))
	line(0, "create bills partitions=1")
	line(0, "start all")
	late := false
	at := 5
	for at < 90 {
		line(at, "produce orders.delay count=%d spread=%ds deliver-after=%dms key=k%%", 20+r.IntN(150), 1+r.IntN(30), r.IntN(5000))
		if r.IntN(2) == 0 {
			line(at, "produce orders.delay count=%d deliver-to=bills deliver-after=%ds value=b%%", 1+r.IntN(50), 1+r.IntN(20))
		}
		if !late && r.IntN(4) == 0 {
			late = true
			line(at, "produce orders.delay count=%d spread=20s deliver-to=late deliver-after=1s value=l%%", 1+r.IntN(300))
		}
		at += 1 + r.IntN(4)
		lasts := 1 + r.IntN(6)
		fault, mend := randomFault(r)
		line(at, "%s", fault)
		at += lasts
		line(at, "%s", mend)
		at += 3 + r.IntN(5)
	}
	if old {
		for _, node := range []string{"n1", "n2", "n3"} {
			line(at, "program %s 0", node)
			at += 4
		}
		line(at, "raise")
	}
	line(max(at, 100), "create late partitions=2")
	return b.String()
}

func randomFault(r *rand.Rand) (fault, mend string) {
	who := []string{"leader", "leader", "follower"}[r.IntN(3)]
	switch r.IntN(6) {
	case 0:
		return "freeze " + who, "thaw all"
	case 1:
		return "isolate " + who, "heal"
	case 2:
		return "cut " + who, "heal"
	case 3:
		return "cut leader from=kafka", "heal"
	case 4:
		return "stop " + who, "start down"
	default:
		return "kill " + who, "start down"
	}
}
