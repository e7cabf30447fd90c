package memtable

import (
	"testing"

	"github.com/carillonmq/carillon/storage/alive"
	"github.com/carillonmq/carillon/storage/name"
	"github.com/carillonmq/carillon/storage/segment"
)

// An id that is used again and again, each time after the message has ended or not, leaves no
// trail of dead ones to walk.
func TestAdd_forgetsTheDeadOfAName(t *testing.T) {
	m := New(1)
	for i := range 1000 {
		e := segment.Entry{Due: 1000, Seq: m.Next(), Target: "orders", Topic: "orders.delay", ID: "same"}
		m.Add(&e)
		if i%10 != 0 {
			m.Remove(e.Seq, e.Seq)
		}
	}
	set := alive.NewSet()
	set.AddRange(1, 991)
	if row, ok, _ := m.Find(name.Of("orders.delay", "same"), set.Contains); !ok || row.Seq != 991 {
		t.Errorf("found %+v, %v", row, ok)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	steps := 0
	for _, newest := range m.names.newest {
		for at := uint32(newest); at != 0; at = m.names.rows.at(at).older {
			steps++
		}
	}
	if steps > 100+10 {
		t.Errorf("%d rows in the chain of 100 alive", steps)
	}
}
