package wheel

import (
	"reflect"
	"testing"
)

func TestHoldsPointers_knowsWhatKeepsMemory(t *testing.T) {
	type plain struct {
		_ uint64
		_ [3]int16
		_ bool
		_ float32
	}
	type nested struct {
		_ plain
		_ [2]string
	}
	for _, c := range []struct {
		of   reflect.Type
		want bool
	}{
		{reflect.TypeFor[uint64](), false},
		{reflect.TypeFor[bool](), false},
		{reflect.TypeFor[complex128](), false},
		{reflect.TypeFor[uintptr](), false}, // keeps nothing, as Go has it
		{reflect.TypeFor[struct{}](), false},
		{reflect.TypeFor[plain](), false},
		{reflect.TypeFor[[0]*int](), false},
		{reflect.TypeFor[[4]plain](), false},
		{reflect.TypeFor[*int](), true},
		{reflect.TypeFor[string](), true},
		{reflect.TypeFor[[]byte](), true},
		{reflect.TypeFor[any](), true},
		{reflect.TypeFor[func()](), true},
		{reflect.TypeFor[chan int](), true},
		{reflect.TypeFor[map[int]int](), true},
		{reflect.TypeFor[nested](), true},
		{reflect.TypeFor[[2]nested](), true},
	} {
		if got := holdsPointers(c.of); got != c.want {
			t.Errorf("holdsPointers(%v) = %v", c.of, got)
		}
	}
}
