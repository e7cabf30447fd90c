// Package body reads the JSON of requests so that it cannot be taken for anything else than what its sender
// wrote. Where encoding/json takes the last of two fields, a name in another case, or U+FFFD for half a
// character, it refuses, and it says which field of which item is wrong. Nodes and the Carillon of package
// clienttest read with it; package client refuses with it what could not be written as it is.
package body

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// A Fault is what is wrong with a body, and where.
type Fault struct {
	Field string // such as messages[3].deliver_at; Whole: no single one
	Value string // what is there, a long one cut; "": nothing
	Words string // all of it in a sentence that names the field, with what to write instead
}

// Error returns the words.
func (f *Fault) Error() string { return f.Words }

// Whole is the Field of what is wrong with the body as such.
const Whole = "body"

// mostQuoted bounds what a Fault repeats of a value, in bytes.
const mostQuoted = 64

// mostItems bounds a list, since in memory an item takes a hundred times what {} does in a body. No request has use for
// so many.
const mostItems = 10_000

// Read reads one JSON value into a pointer to a struct, whose fields are named by their json tags. The error
// is a *Fault. These are refused, which encoding/json takes:
//
//   - a field that comes twice, or whose name differs in case alone
//   - a field that is unknown, as with DisallowUnknownFields
//   - half of a surrogate pair, and bytes that are not UTF-8
//   - an empty text for a field with omitempty: as a header it is refused, too, and to leave it out would be
//     another request; so are a number 0 within a string and an empty list of texts, as where a variable was
//     not set: of a filter they would mean everything
//   - null for the whole or for an item of a list. A field that is null says nothing.
//   - a list of more than ten thousand items
//
// A json.RawMessage is taken as it is written; a type that reads itself does so, and may say more with a
// Fault of its own. Embedded structs and maps are none of a request's.
func Read(text []byte, into any) error {
	if err := check(text); err != nil {
		return err
	}
	r := reader{known: make(map[reflect.Type][]field)}
	raw := bytes.TrimLeft(text, blanks)
	raw = raw[:extent(raw)]
	to := reflect.ValueOf(into).Elem()
	mayLack := to.Kind() == reflect.Pointer && raw[0] == 'n'
	if raw[0] != '{' && !mayLack {
		return fault(Whole, raw, "the body is %s: send an object", kindOf(raw))
	}
	return r.read("", raw, to)
}

// check refuses what is no JSON, or more than one value.
func check(text []byte) error {
	if json.Valid(text) {
		return nil
	}
	in := json.NewDecoder(bytes.NewReader(text))
	err := in.Decode(new(json.RawMessage))
	wrong, isSyntax := errors.AsType[*json.SyntaxError](err)
	switch {
	case err == nil:
		return fault(Whole, bytes.TrimLeft(text[in.InputOffset():], blanks), "there is more behind the JSON value: send one")
	case isSyntax:
		return fault(Whole, text[max(wrong.Offset-1, 0):], "not JSON: %v, at byte %d", err, wrong.Offset)
	case errors.Is(err, io.EOF):
		return fault(Whole, nil, "not JSON: there is nothing but blanks")
	}
	return fault(Whole, text, "not JSON: %v", err)
}

// fault says in words what is wrong with a field, whose value is as it is written in JSON.
func fault(field string, raw []byte, format string, args ...any) *Fault {
	value := string(raw)
	if len(raw) > 0 && raw[0] == '"' && json.Valid(raw) && halfPair(raw) == "" {
		_ = json.Unmarshal(raw, &value) // else it stays as it is written
	}
	return &Fault{Field: field, Value: cut(value), Words: fmt.Sprintf(format, args...)}
}

// cut returns what is repeated of a text.
func cut(text string) string {
	if len(text) > mostQuoted {
		return strings.ToValidUTF8(text[:mostQuoted], "") + "..."
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// A reader reads one body, which is JSON.
type reader struct {
	known map[reflect.Type][]field // of the structs that have come so far
}

// A field is one that a struct has.
type field struct {
	name   string
	index  int
	quoted bool // a number within a string
	filled bool // not to be empty, or 0, if it is there
	wanted bool // leaving it out is no way out: the tag wanted:"true"
}

func (r *reader) fieldsOf(t reflect.Type) []field {
	if known, ok := r.known[t]; ok {
		return known
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		quoted := strings.Contains(options, "string")
		filled := strings.Contains(options, "omitempty") && (quoted || f.Type.Kind() == reflect.String || isTexts(f.Type))
		fields = append(fields, field{name: cmp.Or(name, f.Name), index: i, quoted: quoted, filled: filled, wanted: f.Tag.Get("wanted") == "true"})
	}
	r.known[t] = fields
	return fields
}

func isTexts(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String
}

// read reads a value into what the path leads to.
func (r *reader) read(path string, raw []byte, into reflect.Value) error {
	if self, ok := into.Addr().Interface().(json.Unmarshaler); ok {
		return readSelf(path, raw, self)
	}
	if raw[0] == 'n' { // null
		return nil
	}
	switch into.Kind() {
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		return r.read(path, raw, into.Elem())
	case reflect.Struct:
		return r.object(path, raw, into)
	case reflect.Slice:
		return r.list(path, raw, into)
	}
	return plain(path, raw, into, false)
}

// readSelf has a value read itself.
func readSelf(path string, raw []byte, self json.Unmarshaler) error {
	if _, asWritten := self.(*json.RawMessage); asWritten && !utf8.Valid(raw) {
		return notUTF8(path, raw)
	}
	err := self.UnmarshalJSON(raw)
	if err == nil {
		return nil
	}
	told := fault(path, raw, "%s: %v", path, err)
	if within, ok := errors.AsType[*Fault](err); ok && within.Field != Whole {
		told.Field, told.Value = path+"."+within.Field, within.Value
	}
	return told
}

func (r *reader) object(path string, raw []byte, into reflect.Value) error {
	if raw[0] != '{' {
		return wrongKind(path, raw, "an object")
	}
	fields := r.fieldsOf(into.Type())
	seen := make([]bool, len(fields))
	for rest := inside(raw); len(rest) > 0; {
		var key, value []byte
		key, rest = next(rest)
		value, rest = next(rest[1:]) // behind the colon
		rest = behindComma(rest)

		name, err := text(path, key)
		if err != nil {
			return err
		}
		at := join(path, name)
		place := indexOf(fields, name)
		switch {
		case place < 0:
			return unknown(path, name, value, fields)
		case seen[place]:
			return fault(at, value, "%s comes twice: leave one of the two out", at)
		case fields[place].filled && fields[place].wanted && len(value) == 2 && value[0] == '"':
			return fault(at, value, "%s is empty: give it a value", at)
		case fields[place].filled && len(value) == 2 && value[0] == '"':
			return fault(at, value, "%s is empty: give it a value, or leave it out", at)
		}
		seen[place] = true
		to := into.Field(fields[place].index)
		if fields[place].quoted && value[0] != 'n' {
			err = plain(at, value, to, true)
		} else {
			err = r.read(at, value, to)
		}
		switch {
		case err != nil:
			return err
		case !fields[place].filled || value[0] == 'n':
		case fields[place].quoted && to.IsZero():
			return fault(at, value, "%s is 0, which would count as left out: give it a value, or leave it out", at)
		case to.Kind() == reflect.Slice && to.Len() == 0:
			return fault(at, value, "%s is an empty list, which would count as left out: name something in it, or leave it out", at)
		}
	}
	return nil
}

func (r *reader) list(path string, raw []byte, into reflect.Value) error {
	if raw[0] != '[' {
		return wrongKind(path, raw, "a list")
	}
	list := reflect.MakeSlice(into.Type(), 0, 0)
	zero := reflect.Zero(into.Type().Elem())
	for rest := inside(raw); len(rest) > 0; {
		var item []byte
		item, rest = next(rest)
		rest = behindComma(rest)
		if list.Len() == mostItems {
			return fault(path, raw, "%s has more than %d items: send fewer", path, mostItems)
		}
		at := fmt.Sprintf("%s[%d]", path, list.Len())
		if item[0] == 'n' {
			return fault(at, item, "%s is null: leave it out", at)
		}
		list = reflect.Append(list, zero)
		if err := r.read(at, item, list.Index(list.Len()-1)); err != nil {
			return err
		}
	}
	into.Set(list)
	return nil
}

// plain reads a text, a number, true or false. A quoted number stands within a string.
func plain(path string, raw []byte, into reflect.Value, quoted bool) error {
	kind := into.Kind()
	switch isText := raw[0] == '"'; {
	case quoted && isText:
		return number(path, raw, raw[1:len(raw)-1], into)
	case quoted:
		return wrongKind(path, raw, `a number within a string, such as "1900000000000"`)
	case kind == reflect.String && isText:
		said, err := text(path, raw)
		into.SetString(said)
		return err
	case kind == reflect.String:
		return wrongKind(path, raw, "a string")
	case kind == reflect.Bool && (raw[0] == 't' || raw[0] == 'f'):
		into.SetBool(raw[0] == 't')
		return nil
	case kind == reflect.Bool:
		return wrongKind(path, raw, "true or false")
	case kindOf(raw) != aNumber:
		return wrongKind(path, raw, "a number")
	}
	return number(path, raw, raw, into)
}

// number reads digits, which stand in the value.
func number(path string, raw, digits []byte, into reflect.Value) error {
	if bytes.ContainsAny(digits, blanks+"n") || json.Unmarshal(digits, into.Addr().Interface()) != nil { // n: null
		return fault(path, raw, "%s is %s: write a whole number that has %d bits at most", path, cut(string(raw)), into.Type().Bits())
	}
	return nil
}

// text returns what a string says.
func text(path string, raw []byte) (said string, err error) {
	if !utf8.Valid(raw) {
		return "", notUTF8(path, raw)
	}
	if half := halfPair(raw); half != "" {
		at := cmp.Or(path, Whole)
		return "", fault(at, raw, "%s has half of a surrogate pair, %s, which is no character: write both halves, or bytes that are no text as base64", at, half)
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1]), nil
	}
	err = json.Unmarshal(raw, &said)
	return said, err
}

func notUTF8(path string, raw []byte) *Fault {
	at := cmp.Or(path, Whole)
	return fault(at, raw, "%s is not UTF-8: write bytes that are no text as base64", at)
}

func wrongKind(path string, raw []byte, wanted string) *Fault {
	return fault(path, raw, "%s is %s: write %s", path, kindOf(raw), wanted)
}

// unknown says that the object has no such field, and which one may be meant.
func unknown(path, name string, value []byte, fields []field) *Fault {
	where, remedy := "", "leave it out, or correct its name"
	if path != "" {
		where = path + ": "
	}
	for _, f := range fields {
		if letters(f.name) == letters(name) {
			remedy = fmt.Sprintf("did you mean %q?", f.name)
		}
	}
	name = cut(name)
	return fault(cmp.Or(join(path, name), Whole), value, "%sunknown field %q: %s", where, name, remedy)
}

// letters is what is left of a name when one does not look at its case, hyphens and underscores.
func letters(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func indexOf(fields []field, name string) int {
	for i := range fields {
		if fields[i].name == name {
			return i
		}
	}
	return -1
}

// kindOf is what a value is.
func kindOf(raw []byte) string {
	switch raw[0] {
	case '"':
		return "a JSON string"
	case '{':
		return "a JSON object"
	case '[':
		return "a JSON array"
	case 't', 'f':
		return "a JSON bool"
	case 'n':
		return "a JSON null"
	}
	return aNumber
}

const aNumber = "a JSON number"
