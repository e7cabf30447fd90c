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
