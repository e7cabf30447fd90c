package main

import (
	"reflect"
	"slices"
	"strings"

	"github.com/carillonmq/carillon/broker"
)

// A key is one leaf of the configuration: a name in the file, a flag and a variable.
type key struct {
	name  string // dotted path in the file, which is also the flag's name
	help  string
	index []int // of the field in broker.Config
	typ   reflect.Type
}

// variable returns the name of the environment variable that sets the key.
func (k key) variable() string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// in returns the key's field of the configuration, settable.
func (k key) in(c *broker.Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(k.index)
}

const variablePrefix = "CARILLON_"

// configKeys lists every key of the configuration in the order of its declaration.
func configKeys() []key {
	return appendKeys(nil, key{typ: reflect.TypeFor[broker.Config]()})
}

func appendKeys(keys []key, parent key) []key {
	for field := range fields(parent.typ) {
		k := key{
			name:  strings.TrimPrefix(parent.name+"."+field.Tag.Get("yaml"), "."),
			help:  field.Tag.Get("help"),
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

// didYouMean returns a question that names the choice nearest to the word, or
// nothing when none is near.
func didYouMean(word string, choices []string) string {
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
