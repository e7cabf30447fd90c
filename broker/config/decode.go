package config

import (
	"encoding"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// DurationRemedy is what to do about a duration that cannot be read.
const DurationRemedy = "write a duration such as 300ms, 5s, 1h30m, 7d or 100y"

// decode sets a field of the configuration to a value as viper has it: text from
// flag or variable, or what the YAML reader made of the file. Every error names
// the field, and none shows a secret.
func decode(name string, field reflect.Value, raw any) error {
	wrong := func(remedy string) error {
		return &FieldError{Field: name, Value: shown(field.Type(), raw), Remedy: remedy}
	}
	switch field.Kind() {
	case reflect.Slice:
		return decodeList(name, field, raw)
	case reflect.Struct:
		return decodeStruct(name, field, raw)
	}
	switch raw.(type) {
	case []any, map[string]any:
		return wrong("write a single value")
	}
	text := fmt.Sprint(raw)
	if field.Type() == reflect.TypeFor[time.Duration]() {
		d, err := ParseDuration(text)
		if err != nil {
			return wrong(DurationRemedy)
		}
		field.SetInt(int64(d))
		return nil
	}
	if u, ok := field.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			return wrong(err.Error())
		}
		return nil
	}
	switch field.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return wrong("write true or false")
		}
		field.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return wrong("write a whole number")
		}
		field.SetInt(int64(n))
	case reflect.String:
		field.SetString(text)
	default:
		panic("no reading of " + name + " of type " + field.Type().String())
	}
	return nil
}

// decodeList takes a list, or text: names separated by commas, or for a list of
// structs what could stand in the file.
func decodeList(name string, field reflect.Value, raw any) error {
	wrong := &FieldError{Field: name, Value: shown(field.Type(), raw), Remedy: "write a list such as [a, b]"}
	ofStructs := field.Type().Elem().Kind() == reflect.Struct
	if ofStructs {
		wrong.Remedy = "write a list such as [{" + names(field.Type().Elem())[0] + ": ...}]"
	}
	if text, ok := raw.(string); ok && ofStructs {
		raw = nil
		if document, err := onlyDocument([]byte(text)); err != nil || asWritten(&document).Decode(&raw) != nil {
			return wrong
		}
	} else if ok {
		if text = strings.TrimSpace(text); strings.HasPrefix(text, "[") && strings.Index(text, "]") == len(text)-1 {
			// It would be one name, and as a pattern a single character of those within.
			return &FieldError{Field: name, Value: text, Remedy: "write names parted by commas, without brackets"}
		}
		raw = splitNames(text)
	}
	items, ok := raw.([]any)
	if !ok {
		return wrong
	}
	list := reflect.MakeSlice(field.Type(), len(items), len(items))
	for i, item := range items {
		if item == nil {
			return &FieldError{Field: fmt.Sprintf("%s[%d]", name, i), Value: "null", Remedy: "write a value, or take the item out"}
		}
		if err := decode(fmt.Sprintf("%s[%d]", name, i), list.Index(i), item); err != nil {
			return err
		}
	}
	field.Set(list)
	return nil
}

func splitNames(text string) []any {
	names := []any{}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// decodeStruct fills one entry of a list, starting from its defaults.
func decodeStruct(name string, field reflect.Value, raw any) error {
	entries, ok := raw.(map[string]any)
	if !ok {
		return &FieldError{
			Field: name, Value: shown(field.Type(), raw),
			Remedy: "write {" + strings.Join(names(field.Type()), ": ..., ") + ": ...}",
		}
	}
	if field.Type() == reflect.TypeFor[Route]() {
		field.Set(reflect.ValueOf(NewRoute("")))
	}
	for entry, raw := range entries {
		f, ok := fieldOf(field.Type(), entry)
		if !ok {
			// Without its value: what it was meant for may be a secret.
			return fmt.Errorf("unknown key %s.%s%s", name, entry, DidYouMean(entry, names(field.Type())))
		}
		if raw == nil {
			if f.Type.Kind() != reflect.Slice {
				continue
			}
			raw = []any{} // left out, a list may stand for all that there is: null must not
		}
		if err := decode(name+"."+entry, field.FieldByIndex(f.Index), raw); err != nil {
			return err
		}
	}
	return nil
}

// shown returns a value of the type as errors may show it: masked when there is a
// secret in the type, wherever in it the value was written.
func shown(typ reflect.Type, raw any) string {
	if holdsSecret(typ) {
		return Secret("any").String()
	}
	return fmt.Sprint(raw)
}

func holdsSecret(typ reflect.Type) bool {
	switch typ.Kind() {
	case reflect.Slice:
		return holdsSecret(typ.Elem())
	case reflect.Struct:
		for field := range fields(typ) {
			if holdsSecret(field.Type) {
				return true
			}
		}
	}
	return typ == reflect.TypeFor[Secret]()
}
