package body

import (
	"encoding/json"
	"fmt"
	"reflect"
	"unicode/utf8"
)

// CheckText returns what is wrong with a request that holds a text that is not UTF-8, or nil: encoding/json
// would put U+FFFD in the place of its bytes, so that "order-\xe8" and "order-\xe9" would be sent as one and
// the same. The Fault names the field as those of [Read] do. A request is what Read reads into, or a value of it.
func CheckText(request any) *Fault {
	r := reader{known: make(map[reflect.Type][]field)}
	return r.checkText("", reflect.ValueOf(request))
}

func (r *reader) checkText(path string, v reflect.Value) *Fault {
	switch v.Kind() {
	case reflect.String:
		return CheckOne(path, v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return r.checkText(path, v.Elem())
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			return CheckOne(path, string(v.Bytes()))
		}
		for i := range v.Len() {
			if wrong := r.checkText(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); wrong != nil {
				return wrong
			}
		}
	case reflect.Struct:
		for _, f := range r.fieldsOf(v.Type()) {
			if wrong := r.checkText(join(path, f.name), v.Field(f.index)); wrong != nil {
				return wrong
			}
		}
	}
	return nil
}

// CheckOne is [CheckText] of one text, which the field has.
func CheckOne(field, text string) *Fault {
	if utf8.ValidString(text) {
		return nil
	}
	shown := text
	if len(shown) > mostQuoted {
		shown = shown[:mostQuoted]
	}
	return fault(field, []byte(text), "%s %q is not UTF-8: write text in UTF-8, and bytes of a key or a value that are no text as base64, as client.Bytes does", field, shown)
}
