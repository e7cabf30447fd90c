package config

import (
	"reflect"
	"slices"
	"strings"
)

// A Key is one leaf of the configuration: a name in the file, a flag and a variable.
type Key struct {
	Name  string // dotted path in the file, which is also the flag's name
	Help  string // what it is for, in a line
	index []int  // of the field in Config
	typ   reflect.Type
}

// Variable returns the name of the environment variable that sets the key.
func (k Key) Variable() string {
	return VariablePrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Secret reports whether a value of the key must not be seen, as on a command line.
func (k Key) Secret() bool { return k.typ == reflect.TypeFor[Secret]() }

// Text returns the key's value in the configuration as a flag or a variable gives it.
func (k Key) Text(c Config) string { return flowText(k.in(&c)) }

// Kind returns what a value of the key is: "bool", "list", "duration" or "string".
func (k Key) Kind() string {
	switch {
	case k.typ.Kind() == reflect.Bool:
		return "bool"
	case k.typ.Kind() == reflect.Slice:
		return "list"
	case strings.HasSuffix(k.typ.Name(), "Duration"):
		return "duration"
	}
	return "string"
}

// in returns the key's field of the configuration, settable.
func (k Key) in(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(k.index)
}

const (
	// VariablePrefix begins the name of every variable that sets a key.
	VariablePrefix = "CARILLON_"
	// FileFlag and FileVariable name the configuration file; they are no keys of it.
	FileFlag     = "config"
	FileVariable = VariablePrefix + "CONFIG"
	// TokenVariable has the token that verbs show to a node; no key either.
	TokenVariable = VariablePrefix + "TOKEN"
	// APIVariable has the addresses that verbs ask, ContextVariable the name of a context; no keys either.
	APIVariable     = VariablePrefix + "API"
	ContextVariable = VariablePrefix + "CONTEXT"
)

// Keys lists every key of the configuration in the order of its declaration.
func Keys() []Key {
	return appendKeys(nil, Key{typ: reflect.TypeFor[Config]()})
}

func appendKeys(keys []Key, parent Key) []Key {
	for field := range fields(parent.typ) {
		k := Key{
			Name:  strings.TrimPrefix(parent.Name+"."+field.Tag.Get("yaml"), "."),
			Help:  field.Tag.Get("help"),
			index: append(slices.Clone(parent.index), field.Index...),
			typ:   field.Type,
		}
		if k.typ.Kind() == reflect.Struct {
			keys = appendKeys(keys, k)
		} else {
			keys = append(keys, k)
		}
	}
	return keys
}

// fields yields the fields of a struct of the configuration.
func fields(typ reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for i := range typ.NumField() {
			if !yield(typ.Field(i)) {
				return
			}
		}
	}
}

// fieldOf returns the field of the struct that has the name in the file.
func fieldOf(typ reflect.Type, name string) (reflect.StructField, bool) {
	for field := range fields(typ) {
		if field.Tag.Get("yaml") == name {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

// names returns the names in the file of the struct's fields.
func names(typ reflect.Type) []string {
	var all []string
	for field := range fields(typ) {
		all = append(all, field.Tag.Get("yaml"))
	}
	return all
}

// DidYouMean returns a question that names the choice nearest to the word, or
// nothing when none is near.
func DidYouMean(word string, choices []string) string {
	if choice := nearest(word, choices); choice != "" {
		return "; did you mean " + choice + "?"
	}
	return ""
}

// nearest returns the choice that takes the fewest changes of the word, "" when
// each takes more than half of it.
func nearest(word string, choices []string) string {
	best, least := "", len(word)/2+1
	for _, choice := range choices {
		if d := editDistance(strings.ToLower(word), strings.ToLower(choice)); d < least {
			best, least = choice, d
		}
	}
	return best
}

// editDistance counts the characters to insert, delete or replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
