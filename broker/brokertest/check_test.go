package brokertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillonmq/carillon/storage"
)

// A noting test takes down what fails it, and goes on.
type noting struct {
	testing.TB
	failures []string
}

func (n *noting) Errorf(format string, args ...any) {
	n.failures = append(n.failures, fmt.Sprintf(format, args...))
}

// Nodes that have the same state and not the same messages are found when all is over, too.
func TestCheck_findsNodesThatDifferAtTheEnd(t *testing.T) {
	s, err := parseScript(strings.NewReader("cluster nodes=3\n" + begin + "\nat 10s produce orders.delay count=2 deliver-after=1h\n"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		noted := &noting{TB: t}
		c := newCluster(noted, s.settings)
		defer c.stop()
		p := newPlayer(c, NewReport())
		c.raise, c.pause, c.waitFor = p.scene.raise, p.wait, p.waitFor
		for _, step := range s.steps {
			p.watch(p.start.Add(step.at))
			p.do(step)
		}
		p.settle(s.settings)
		c.await(time.Minute, "both to wait", func() bool {
			return !slices.ContainsFunc(c.nodes, func(n *node) bool { return n.raft().Store().Pending() < 2 })
		})
		synctest.Wait() // nobody writes now
		p.node("follower").raft().Store().Kill([]storage.SeqRun{{First: 1, Last: 1}})
		p.check(s.settings)
		if !slices.ContainsFunc(noted.failures, func(text string) bool { return strings.HasPrefix(text, "digest: the schedules of") }) {
			t.Errorf("want that the schedules differ, got %q", noted.failures)
		}
	})
}

// A year in which nothing runs is no year of a test.
func TestReport_countsTheTimeInWhichANodeRuns(t *testing.T) {
	report := played(t, "cluster nodes=1\n"+begin+`
at 10s produce orders.delay deliver-after=1s
at 20s stop all
at 100d start all
`, nil)
	if got := report.VirtualSeconds; got < 20 || got > 20+3600 {
		t.Errorf("%v seconds, want those in which the node ran", got)
	}
}
