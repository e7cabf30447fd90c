package broker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/carillonmq/carillon/broker/message"
	"github.com/carillonmq/carillon/broker/report"
)

func TestMetrics_countWhatHappens(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	m := NewMetrics(registry)
	m.Accepted(10)
	m.Rejected(message.CodeMalformed, 2)
	m.Delivered(3)
	m.Delivered(4000)
	m.Retried(5)
	m.Expired(7)
	m.DeadLettered(message.CodeTooLarge, 2)
	m.DeadLetterStuck()
	m.ValueDropped()
	m.Unreadable()
	m.SourceLost(12)
	m.Parked(2)
	m.Parked(-1)
	m.ClockStepped(-1500 * time.Millisecond)
	m.ClockStepped(time.Second)

	lag := int64(7)
	registry.MustRegister(NewCollector(func() Status {
		return Status{State: "leader", Leader: "n1", Term: 4, Pending: 8, OldestDue: 1500, Lag: &lag,
			Reading: &report.Reading{Partitions: map[string]int{report.StateRead: 3, report.StateForbidden: 2}}, Storage: StorageStatus{Flushes: 6}}
	}))
	text := exposition(t, registry)
	for _, line := range []string{
		"carillon_accepted_total 10", `carillon_rejected_total{code="malformed"} 2`, `carillon_rejected_total{code="too-large"} 0`, "carillon_ingest_lag 7",
		"carillon_source_lost_records_total 12", `carillon_source_partitions{state="read"} 3`,
		`carillon_source_partitions{state="forbidden"} 2`, `carillon_source_partitions{state="failing"} 0`,
		"carillon_delivered_total 2", "carillon_retried_total 5", "carillon_expired_total 7", `carillon_dead_lettered_total{code="too-large"} 2`,
		"carillon_dead_letter_stuck_total 1", "carillon_dead_letter_values_dropped_total 1", "carillon_parked_targets 1", "carillon_unreadable_total 1",
		`carillon_lateness_seconds_bucket{le="0.003"} 1`, `carillon_lateness_seconds_bucket{le="5"} 2`,
		`carillon_clock_steps_total{direction="backward"} 1`, "carillon_clock_stepped_seconds_total 2.5",
		"carillon_pending 8", "carillon_oldest_due_timestamp_seconds 1.5", "carillon_ready 1",
		"carillon_raft_is_leader 1", "carillon_raft_term 4", "carillon_storage_flushes_total 6",
	} {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("%s is missing in:\n%s", line, text)
		}
	}
}

// An alarm on an increase needs the zero before it, for every reason that there is.
func TestMetrics_listEveryCodeOfAProblem(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "message/problem.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	NewMetrics(registry)
	text := exposition(t, registry)
	codes := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Code") {
			return true
		}
		codes++
		if code := spec.Values[0].(*ast.BasicLit).Value; !strings.Contains(text, "_total{code="+code+"} 0\n") {
			t.Errorf("%s is not counted from 0 by any metric", spec.Names[0].Name)
		}
		return true
	})
	if codes == 0 {
		t.Error("message/problem.go has no codes")
	}
}

// exposition is what Prometheus scrapes.
func exposition(t *testing.T, registry prometheus.Gatherer) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}
