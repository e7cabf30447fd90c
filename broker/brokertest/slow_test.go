package brokertest

import "testing"

// Answers come late, or not at all, and what waited is written in the end.
func TestVerbs_ofSlowKafka(t *testing.T) {
	for name, text := range map[string]string{
		"slow": `
at 10s slow orders answer=3s
at 10s produce orders.delay deliver-after=1s
at 10s produce orders.delay deliver-to=bills deliver-after=1s
at 13s expect delivered orders count=0
at 13s expect delivered bills
at 15s expect delivered orders`,
		"hush": `
at 10s hush orders
at 10s produce orders.delay deliver-after=1s
at 10s produce orders.delay deliver-to=bills deliver-after=1s
at 5m  expect delivered orders count=0
at 5m  expect delivered bills
at 5m  well orders
at 8m  expect delivered orders`,
		"no answer": `
at 10s error Produce err=NO_ANSWER topic=orders count=1
at 10s produce orders.delay deliver-after=1s
at 13s expect delivered orders count=0
at 1m  expect delivered orders`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			played(t, "cluster nodes=1\n"+begin+text, nil)
		})
	}
}
