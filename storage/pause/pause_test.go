package pause

import (
	"slices"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
)

func TestSet_isSortedAndNeverChanges(t *testing.T) {
	var empty Set
	one := empty.With(Pause{Kind: Target, Name: "orders", Who: "ann", Why: "full", Since: 1})
	two := one.With(Pause{Kind: Topic, Name: "orders", Who: "bob", Since: 2}).With(Pause{Kind: Target, Name: "bills", Since: 3})
	again := two.With(Pause{Kind: Target, Name: "bills", Who: "cyd", Since: -4})
	want := []Pause{{Kind: Topic, Name: "orders", Who: "bob", Since: 2}, {Kind: Target, Name: "bills", Who: "cyd", Since: -4}, {Kind: Target, Name: "orders", Who: "ann", Why: "full", Since: 1}}
	if !slices.Equal(again.All(), want) {
		t.Errorf("all %+v, want %+v", again.All(), want)
	}
	if len(empty.All()) != 0 || len(one.All()) != 1 || two.All()[1].Who != "" {
		t.Error("a set has changed")
	}
	less := again.Without(Target, "orders").Without(Target, "nobody")
	if less.Has(Target, "orders") || !less.Has(Topic, "orders") || !again.Has(Target, "orders") {
		t.Errorf("without orders: %+v, before: %+v", less.All(), again.All())
	}
}

func TestSet_comesBackAsItWent(t *testing.T) {
	s := Set{}.With(Pause{Kind: Topic, Name: "a", Who: "ann", Why: "", Since: -1}).With(Pause{Kind: Target, Name: "a", Since: 1 << 50})
	b := s.Append(nil)
	d := codec.NewDecoder(b)
	if got := Read(&d); d.Finish("pauses") != nil || !slices.Equal(got.All(), s.All()) {
		t.Errorf("got %+v, want %+v", got, s)
	}
	for n := range len(b) {
		d := codec.NewDecoder(b[:n])
		Read(&d)
		if d.Finish("pauses") == nil {
			t.Errorf("cut to %d of %d bytes it decodes", n, len(b))
		}
	}
	for name, b := range map[string][]byte{
		"no such kind":       {1, 3, 2, 'a', 1, 1, 0},
		"out of their order": {2, 2, 2, 'a', 1, 1, 0, 1, 2, 'a', 1, 1, 0},
		"twice the same":     {2, 1, 2, 'a', 1, 1, 0, 1, 2, 'a', 1, 1, 0},
	} {
		d := codec.NewDecoder(b)
		if Read(&d); !d.Failed() {
			t.Errorf("%s: it decodes", name)
		}
	}
}

func TestBounds_coverWhatNamesEitherOrBoth(t *testing.T) {
	var b Bounds
	if b.Covers("a", "orders") != Unbound || len(b.Append(nil)) != 0 {
		t.Error("no bounds hold something back, or are written")
	}
	b.Lower(That(Topic, "a"), Bound{Through: 90, Before: 7})
	b.Lower(That(Target, "orders"), Bound{Through: 80, Before: 9})
	copied := b.Clone()
	b.Lower(Of{"a", "bills"}, Bound{Through: 5, Before: 20})
	b.Lower(Of{"a", "bills"}, Bound{Through: 6, Before: 3})
	for of, want := range map[Of]Bound{
		{"a", "orders"}: {80, 7}, {"a", "bills"}: {5, 3}, {"a", "x"}: {90, 7}, {"x", "orders"}: {80, 9}, {"orders", "a"}: Unbound,
	} {
		if got := b.Covers(of.Topic, of.Target); got != want {
			t.Errorf("%v is bounded by %v, want %v", of, got, want)
		}
	}
	if copied.Covers("a", "bills") != (Bound{90, 7}) {
		t.Error("a copy has changed")
	}
	d := codec.NewDecoder(b.Append(nil))
	if again := ReadBounds(&d); d.Finish("bounds") != nil || !slices.Equal(again.Append(nil), b.Append(nil)) || again.Covers("a", "bills") != (Bound{5, 3}) {
		t.Error("bounds do not come back as they went")
	}
	b.Lower(Of{"b", "bills"}, Bound{Through: 1, Before: 1})
	b.Set(Of{"b", "orders"}, Bound{Through: 1, Before: 1})
	b.Set(Of{"b", "orders"}, Bound{Through: 2, Before: 2})
	if b.Get(Of{"b", "orders"}) != (Bound{2, 2}) || b.Len() != 5 {
		t.Errorf("set twice it is %v, one of %d", b.Get(Of{"b", "orders"}), b.Len())
	}
	if topics, targets := b.Topics(), b.Targets("b"); !slices.Equal(topics, []string{"a", "b"}) || !slices.Equal(targets, []string{"bills", "orders"}) || len(b.Targets("c")) > 0 {
		t.Errorf("bounds name the topics %v, and with b the targets %v", topics, targets)
	}
	for _, of := range []Of{{"a", "bills"}, {Topic: "a"}, {Target: "orders"}, {"b", "bills"}, {"b", "orders"}, {"never", "set"}} {
		if b.Set(of, Unbound); b.Get(of) != Unbound {
			t.Errorf("%v is taken out and bounded by %v", of, b.Get(of))
		}
	}
	b.Set(Of{"never", "set"}, Unbound)
	if len(b.Topics())+len(b.Targets("a"))+b.Len() > 0 {
		t.Error("none is left, and some are named")
	}
	if len(b.Append(nil)) != 0 {
		t.Error("none is left, and something is written")
	}
}

func TestBound_letsThroughUpToItsTimeAndBelowItsSeq(t *testing.T) {
	b := Bound{Through: 90, Before: 7}
	for _, test := range []struct {
		due   int64
		seq   uint64
		stops bool
	}{{90, 6, false}, {91, 6, true}, {90, 7, true}, {-1, 0, false}} {
		if b.Stops(test.due, test.seq) != test.stops {
			t.Errorf("seq %d, due at %d: stopped %t", test.seq, test.due, !test.stops)
		}
	}
}

func TestBounds_refuseWhatTheyDidNotWrite(t *testing.T) {
	for name, b := range map[string][]byte{
		"none":               {0},
		"cut":                {1, 1, 'a', 0, 2},
		"out of their order": {2, 1, 'b', 0, 2, 3, 1, 'a', 0, 2, 3},
		"twice the same":     {2, 1, 'b', 0, 2, 3, 1, 'b', 0, 2, 3},
	} {
		d := codec.NewDecoder(b)
		if ReadBounds(&d); d.Finish("bounds") == nil {
			t.Errorf("%s: they decode", name)
		}
	}
}
