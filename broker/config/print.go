package config

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Print writes the settings as a configuration file, secrets masked, each value
// with its origin as a comment.
func (s *Settings) Print(w io.Writer) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, k := range Keys() {
		parts := strings.Split(k.Name, ".")
		parent := root
		for _, section := range parts[:len(parts)-1] {
			parent = sectionOf(parent, section)
		}
		name := &yaml.Node{Kind: yaml.ScalarNode, Value: parts[len(parts)-1]}
		value := valueNode(k.in(&s.Config))
		value.LineComment = s.Origins[k.Name]
		if value.Kind == yaml.SequenceNode && value.Style != yaml.FlowStyle {
			name.LineComment, value.LineComment = value.LineComment, ""
		}
		parent.Content = append(parent.Content, name, value)
	}
	out := yaml.NewEncoder(w)
	out.SetIndent(2)
	if err := out.Encode(root); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return out.Close()
}

// sectionOf returns the mapping below the parent, which it adds when missing.
func sectionOf(parent *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(parent.Content); i += 2 {
		if parent.Content[i].Value == name {
			return parent.Content[i+1]
		}
	}
	section := &yaml.Node{Kind: yaml.MappingNode}
	parent.Content = append(parent.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, section)
	return section
}

// valueNode writes a list of structs as a block, every other value in one line.
func valueNode(v reflect.Value) *yaml.Node {
	switch value := v.Interface().(type) {
	case time.Duration:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: FormatDuration(value)}
	case fmt.Stringer: // a Secret shows asterisks
		return textNode(value.String())
	}
	switch v.Kind() {
	case reflect.Slice:
		list := &yaml.Node{Kind: yaml.SequenceNode}
		if v.Type().Elem().Kind() != reflect.Struct || v.Len() == 0 {
			list.Style = yaml.FlowStyle
		}
		for i := range v.Len() {
			list.Content = append(list.Content, valueNode(v.Index(i)))
		}
		return list
	case reflect.Struct:
		entry := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
		for field := range fields(v.Type()) {
			value := v.FieldByIndex(field.Index)
			leftOut := value.Kind() == reflect.String && value.Len() == 0 || value.Kind() == reflect.Slice && value.IsNil()
			if !leftOut {
				entry.Content = append(entry.Content, textNode(field.Tag.Get("yaml")), valueNode(value))
			}
		}
		return entry
	case reflect.Bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v.Bool())}
	case reflect.Int:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: fmt.Sprint(v.Int())}
	default:
		return textNode(v.String())
	}
}

// textNode quotes where YAML would read something else than text.
func textNode(text string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(text)
	return node
}

// flowText returns the value as a flag or variable takes it.
func flowText(v reflect.Value) string {
	node := valueNode(v)
	if node.Kind == yaml.ScalarNode {
		return node.Value
	}
	node.Style = yaml.FlowStyle
	text, err := yaml.Marshal(node)
	if err != nil {
		return ""
	}
	flow := strings.TrimSpace(string(text))
	if v.Type().Elem().Kind() != reflect.Struct {
		flow = strings.NewReplacer("[", "", "]", "", `"`, "", "'", "", ", ", ",").Replace(flow)
	}
	return flow
}
