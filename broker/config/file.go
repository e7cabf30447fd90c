package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readFile returns what the configuration file says, its values as asWritten has
// them. It refuses what is not YAML and every key that does not exist, each with
// its line.
func readFile(path string) (map[string]any, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	document, err := onlyDocument(text)
	if err != nil {
		if strings.Contains(err.Error(), "unknown anchor") { // which it names: a secret, perhaps
			err = errors.New("a value begins with * and is not in quotes: put it in quotes")
		}
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	if len(document.Content) == 0 {
		return nil, nil
	}
	unknown := unknownKeys(path, document.Content[0], "", reflect.TypeFor[Config]())
	if len(unknown) > 0 {
		return nil, errors.Join(unknown...)
	}
	var tree map[string]any
	if err := asWritten(&document).Decode(&tree); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return tree, nil
}

// onlyDocument parses a text that must have no second document: nobody would read that. Of an empty one it
// returns the zero Node.
func onlyDocument(text []byte) (document yaml.Node, err error) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	if err := in.Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return yaml.Node{}, err
	}
	var second yaml.Node
	switch err := in.Decode(&second); {
	case err == nil:
		return yaml.Node{}, fmt.Errorf("the --- in line %d begins a second document: write one alone", second.Line)
	case !errors.Is(err, io.EOF):
		return yaml.Node{}, err
	}
	return document, nil
}

// asWritten makes every value text, as the file has it: YAML takes the password
// 0123 for the number 83. Nothing but null remains what it is.
func asWritten(node *yaml.Node) *yaml.Node {
	if tag := node.ShortTag(); node.Kind == yaml.ScalarNode && tag != "!!null" && tag != "!!merge" {
		node.Tag = "!!str"
	}
	for _, part := range node.Content {
		asWritten(part)
	}
	return node
}

// unknownKeys compares a part of the file with the type that is to hold it.
func unknownKeys(path string, node *yaml.Node, name string, typ reflect.Type) []error {
	if node.Kind == yaml.AliasNode {
		node = node.Alias
	}
	switch {
	case typ.Kind() == reflect.Slice && node.Kind == yaml.SequenceNode:
		var unknown []error
		for i, item := range node.Content {
			unknown = append(unknown, unknownKeys(path, item, fmt.Sprintf("%s[%d]", name, i), typ.Elem())...)
		}
		return unknown
	case typ.Kind() != reflect.Struct || node.Tag == "!!null":
		return nil
	case node.Kind != yaml.MappingNode:
		return []error{fmt.Errorf("%s:%d: %w", path, node.Line,
			&FieldError{Field: name, Value: shown(typ, node.Value), Remedy: "write its keys, indented, below it"})}
	}
	var unknown []error
	for i := 0; i+1 < len(node.Content); i += 2 {
		k, value := node.Content[i], node.Content[i+1]
		full := k.Value
		if name != "" {
			full = name + "." + k.Value
		}
		field, ok := fieldOf(typ, k.Value)
		if !ok {
			unknown = append(unknown, fmt.Errorf("%s:%d: unknown key %s%s", path, k.Line, full, suggestKey(k.Value, typ)))
			continue
		}
		unknown = append(unknown, unknownKeys(path, value, full, field.Type)...)
	}
	return unknown
}

// suggestKey looks among the neighbours first, then for the same word elsewhere.
func suggestKey(word string, typ reflect.Type) string {
	if hint := DidYouMean(word, names(typ)); hint != "" {
		return hint
	}
	for _, k := range Keys() {
		if strings.HasSuffix(k.Name, "."+word) {
			return "; did you mean " + k.Name + "?"
		}
	}
	return ""
}
