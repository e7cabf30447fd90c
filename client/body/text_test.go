package body

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestCheckText_namesTheFieldThatWouldBeSentAsAnother(t *testing.T) {
	const no = "order-\xe9"
	long := strings.Repeat("ü", 100) + "\xff"
	for field, request := range map[string]any{
		"text":           thing{Text: no},
		"free_text":      &thing{Free: no},
		"list[1]":        thing{List: []string{"a", no}},
		"inner.text":     thing{Inner: &thing{Text: no}},
		"many[1].text":   thing{Many: []thing{{Text: "ü"}, {Text: no}}},
		"raw":            thing{Raw: json.RawMessage(`"` + no + `"`)},
		"self.Said":      thing{Self: word{no}},
		"inner.raw":      thing{Text: "ü\uFFFD\x00", Inner: &thing{Raw: json.RawMessage(`{"a":"` + no + `"}`)}},
		"inner.list[0]":  thing{Inner: &thing{List: []string{long}}},
		"none at all":    thing{Text: "ü\uFFFD\x00", Raw: json.RawMessage(`{"a":"ü"}`), List: []string{""}, Not: no},
		"of no pointer":  (*thing)(nil),
		"of what is nil": nil,
	} {
		wrong := CheckText(request)
		if isGood := strings.Contains(field, " "); isGood != (wrong == nil) {
			t.Errorf("%s: %v", field, wrong)
			continue
		} else if isGood {
			continue
		}
		if wrong.Field != field || !strings.HasPrefix(wrong.Words, field+` "`) || !strings.Contains(wrong.Words, "is not UTF-8") || wrong.Value == "" || len(wrong.Words) > 800 {
			t.Errorf("%s: %+v", field, wrong)
		}
	}
	if wrong := CheckText(thing{Text: no}); wrong == nil || wrong.Value != "order-\uFFFD" || !strings.Contains(wrong.Words, `"order-\xe9"`) || !strings.Contains(wrong.Words, "base64") {
		t.Errorf("it says %+v", wrong)
	}
}
