package torture_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/cmd/carillon/e2e/torture"
)

func TestDraw_isTheSameForTheSameSeed(t *testing.T) {
	s := torture.Setting{Seed: 7, Faults: 100, Nodes: 3, Brokers: 3, Network: true, Disks: true}
	one, other := torture.Draw(s), torture.Draw(s)
	if !reflect.DeepEqual(one, other) {
		t.Error("two scripts of one seed differ")
	}
	s.Seed++
	if reflect.DeepEqual(one, torture.Draw(s)) {
		t.Error("two seeds give one script")
	}
}

func TestDraw_hasEveryKindAsOften(t *testing.T) {
	s := torture.Setting{Faults: 100, Nodes: 3, Brokers: 3, Network: true, Disks: true}
	for s.Seed = range 100 {
		count := map[torture.Kind]int{}
		number, single := 0, 0
		script := torture.Draw(s)
		for _, episode := range script {
			if len(episode) == 1 {
				single++
			}
			for _, fault := range episode {
				number++
				count[fault.Kind]++
				if fault.Number != number || fault.On == fault.With && fault.On != "" {
					t.Fatalf("seed %d: fault %d is %+v", s.Seed, number, fault)
				}
			}
		}
		if number != s.Faults || single == 0 || single == len(script) {
			t.Errorf("seed %d: %d faults, %d of %d episodes of one", s.Seed, number, single, len(script))
		}
		for _, kind := range s.Kinds() {
			if n, each := count[kind], s.Faults/len(s.Kinds()); n != each && n != each+1 {
				t.Errorf("seed %d: %d times %s, not %d or one more", s.Seed, n, kind, each)
			}
		}
	}
}

func TestDraw_keepsToWhatTheMachineCanDo(t *testing.T) {
	for _, episode := range torture.Draw(torture.Setting{Faults: 100, Nodes: 3, Brokers: 1}) {
		for _, f := range episode {
			switch f.Kind {
			case torture.KillNode, torture.StopNode, torture.RollNodes:
			case torture.KillBroker, torture.StopBroker:
				if f.On != "k1" {
					t.Errorf("%s strikes a broker that is not there", f)
				}
			default:
				t.Errorf("%s needs a network, a disk or a second broker", f)
			}
			if !strings.HasPrefix(f.On, "n") && !strings.HasPrefix(f.On, "k") && f.On != torture.Leader && f.Kind != torture.RollNodes {
				t.Errorf("%+v strikes nobody", f)
			}
		}
	}
}
