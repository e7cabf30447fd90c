package brokertest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// What cannot be carried out is refused before anything runs, with the line and what is wanted.
func TestParse_refusesWhatCannotBeCarriedOut(t *testing.T) {
	for line, want := range map[string]string{
		"at 1s explode n1":                         `there is no verb "explode"`,
		"at 1s shorten orders.delay by=3":          `want kafka=files on the line "cluster"`,
		"at 1s disk n1 wet":                        `want "disk NODE slow=DURATION" or "disk NODE full"`,
		"at 1s disk n1 slow=much":                  `slow: "much" is no duration`,
		"at 1s kill":                               `want "kill NODES"`,
		"at 1s kill n4":                            "there is no node n4: the cluster has 3",
		"at 1s kill n01":                           `"n01" is no node`,
		"at 1s cut n1 from=n9":                     "there is no node n9",
		"at 1s cut n1 onewy":                       `want "cut NODE [from=HOST] [oneway]"`,
		"at 1s error Produce err=BAD_DAY":          `"BAD_DAY" is no error of Kafka's protocol`,
		"at 1s error Reduce err=NOT_CONTROLLER":    `"Reduce" is no request of Kafka's protocol`,
		"at 1s slow orders":                        `want "slow TOPIC answer=DURATION"`,
		"at 1s stale bread":                        `want "stale metadata [lasts=DURATION]"`,
		"at 1s clock n1 drift=1h":                  `"1h" is no drift`,
		"at 1s produce a.delay colour=red":         `want "produce TOPIC`,
		"at 1s produce a.delay count=0":            `count: "0" is no number above 0`,
		"at 1s produce a.delay count=1 count=2":    "count stands there twice",
		"at soon kill n1":                          `duration "soon"`,
		"at 1h2d kill n1":                          `duration "1h2d": "1h2" is not a number`,
		"at -1s kill n1":                           `"-1s" lies before the script begins`,
		"at 1s":                                    `want "at DURATION VERB ..."`,
		"on doomsday kill n1":                      "no such event: want one of claim",
		"on claim":                                 `want "on EVENT [nth=COUNT] [after=DURATION] VERB ..."`,
		"on claim nth=0 kill n1":                   `nth: "0" is no number above 0`,
		"on claim after=later kill n1":             `after: duration "later"`,
		"on claim after=-5s kill n1":               `after: "-5s" lies before the script begins`,
		"on claim nth=2 after=1m explode":          `there is no verb "explode"`,
		"at 1s cut n1 from=kafka2":                 "there is no broker 2: Kafka has 1",
		"whenever kill n1":                         `want a line "cluster SETTING..."`,
		"cluster colour=red":                       `want "cluster [long]`,
		"cluster nodes=many":                       `nodes: "many" is no number above 0`,
		"cluster start=later":                      `start: "later" is no choice, want one of earliest, latest`,
		"at 1s config n1 a=b c=d":                  `want "config NODE KEY=VALUE"`,
		"at 1s config n1 colour=red":               `"colour" is no key of the configuration`,
		"at 1s partitions orders.delay three":      `"three" is no number above 0`,
		"at 1s expect delivered orders count=-3":   `count: "-3" is no number`,
		"at 1s expect weather":                     `want "expect delivered TOPIC [count=NUMBER]" or`,
		"on parked nth=1 error Fetch err=NO_ANSER": `"NO_ANSER" is no error of Kafka's protocol`,
	} {
		_, err := parseScript(strings.NewReader("# no fault yet\nat 0s produce orders.delay\n" + line + "\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "line 3: ") {
			t.Errorf("%q: error %v, want line 3 and %q", line, err, want)
		}
	}
}

func TestParse_refusesWhatChecksNothing(t *testing.T) {
	for _, text := range []string{"", "# nothing", "cluster nodes=1", "at 1s kill n1", "on claim produce a.delay"} {
		if _, err := parseScript(strings.NewReader(text)); !errors.Is(err, errChecksNothing) {
			t.Errorf("%q: error %v, want one that it checks nothing", text, err)
		}
	}
}

func TestParse_refusesWhatCannotBe(t *testing.T) {
	for text, want := range map[string]string{
		"cluster merge=1\nat 1s produce a.delay":                      "merge=1: ",
		"cluster nodes=1\nat 1s produce a.delay\ncluster merge=3":     "line 3: the line \"cluster\" stands there twice, in line 1 as well",
		"at 1s produce a.delay\non claim produce a.delay about=100ms": "line 2: about= is for lines",
	} {
		if _, err := parseScript(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one that says %q", text, err, want)
		}
	}
}

func TestParse_linesStandInAnyOrder(t *testing.T) {
	s, err := parseScript(strings.NewReader(`
at 2s produce orders.delay deliver-after=1s h-name=x bytes=100 abort
on flushed nth=3 after=1m kill here
at 1s create orders.delay
at 1s error Fetch err=NO_ANSWER topic=orders.delay
cluster nodes=1
`))
	if err != nil {
		t.Fatal(err)
	}
	var verbs []string
	for _, step := range s.steps {
		verbs = append(verbs, step.verb)
	}
	if want := []string{"create", "error", "produce"}; !slices.Equal(verbs, want) {
		t.Errorf("verbs %v, want %v", verbs, want)
	}
	if want := (trigger{event: "flushed", nth: 3, after: time.Minute}); len(s.armed) != 1 || s.armed[0].on != want || s.armed[0].verb != "kill" {
		t.Errorf("armed %+v, want %+v", s.armed, want)
	}
}

func TestParse_refusesWhatStopsTime(t *testing.T) {
	for _, line := range []string{"silence n1", "silence n1 from=kafka2", "freeze leader", "cut leader from=kafka", "error InitProducerID err=NO_ANSWER"} {
		_, err := parseScript(strings.NewReader("cluster brokers=2\nat 0s produce orders.delay\nat 1s " + line + "\n"))
		if err == nil || !strings.Contains(err.Error(), "line 3: "+strings.Fields(line)[0]+" needs brokers=1") {
			t.Errorf("%q: error %v, want that it needs brokers=1", line, err)
		}
	}
}
