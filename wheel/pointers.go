package wheel

import "reflect"

// holdsPointers reports whether a value of type t can keep other memory from
// being collected.
func holdsPointers(t reflect.Type) bool {
	switch kind := t.Kind(); {
	case kind >= reflect.Bool && kind <= reflect.Complex128: // and the numbers, which lie in between
		return false
	case kind == reflect.Array:
		return t.Len() > 0 && holdsPointers(t.Elem())
	case kind == reflect.Struct:
		for i := range t.NumField() {
			if holdsPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return true
}
