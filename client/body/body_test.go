package body

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// A thing has a field of every kind that requests have.
type thing struct {
	Text  string          `json:"text,omitempty"`
	Free  string          `json:"free_text"`
	Count int             `json:"count,omitempty"`
	Part  *int32          `json:"part,omitempty"`
	At    int64           `json:"at,omitempty,string"`
	Seq   uint64          `json:"seq,string"`
	Sure  bool            `json:"sure,omitempty"`
	List  []string        `json:"list,omitempty"`
	Inner *thing          `json:"inner,omitempty"`
	Many  []thing         `json:"many,omitzero"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Self  word            `json:"self,omitzero"`
	Not   string          `json:"-"`
}

// A word reads itself.
type word struct{ Said string }

func (w *word) UnmarshalJSON(text []byte) error {
	type plain word
	if string(text) == "null" {
		return nil
	}
	if text[0] != '{' {
		return errors.New("write an object")
	}
	if err := Read(text, (*plain)(w)); err != nil {
		return fmt.Errorf("no word: %w", err)
	}
	return nil
}

func TestRead_readsWhatRequestsHave(t *testing.T) {
	text := `  { "text" : "a\u00e9\ud83d\ude00" , "free_text":"", "count":-7,"part":0,"at":"-1900000000000","seq":"18446744073709551615","sure":true,
		"list":["a", "b\"]}"], "inner":{"many":[{"text":"x"},{}], "inner":null}, "many":[], "raw": {"a":1,"a":"\ud800", "b":[ ]} ,"self":{"Said":"\\"}, "text\u005f":null}`
	text = strings.Replace(text, `, "text\u005f":null`, "", 1)
	var got, want thing
	if err := Read([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("read %+v, want %+v", got, want)
	}
}

// To leave out what is wanted would be refused as well, so it is no advice.
func TestRead_doesNotAdviseToLeaveOutWhatIsWanted(t *testing.T) {
	var into struct {
		Why string `json:"why,omitempty" wanted:"true"`
	}
	if err := Read([]byte(`{"why":""}`), &into); err == nil || err.Error() != "why is empty: give it a value" {
		t.Errorf("error %v", err)
	}
}

func TestRead_saysWhichFieldIsWrong(t *testing.T) {
	for _, test := range []struct{ text, field, value, says string }{
		{`{"text":"a","text":"b"}`, "text", "b", "text comes twice"},
		{`{"text":"a","te\u0078t":"b"}`, "text", "b", "text comes twice"},
		{`{"many":[{},{"count":1,"count":1}]}`, "many[1].count", "1", "many[1].count comes twice"},
		{`{"Text":"a"}`, "Text", "a", `unknown field "Text": did you mean "text"?`},
		{`{"freeText":"a"}`, "freeText", "a", `did you mean "free_text"?`},
		{`{"inner":{"free-text":[1, 2]}}`, "inner.free-text", "[1, 2]", `inner: unknown field "free-text": did you mean "free_text"?`},
		{`{"other":1}`, "other", "1", `unknown field "other": leave it out, or correct its name`},
		{`{"Not":"a"}`, "Not", "a", "unknown"},
		{`{"-":"a"}`, "-", "a", "unknown"},
		{`{"many":[{},{},{},{"text":7}]}`, "many[3].text", "7", "many[3].text is a JSON number: write a string"},
		{`{"many":[{"inner":{"at":5}}]}`, "many[0].inner.at", "5", `many[0].inner.at is a JSON number: write a number within a string, such as "1900000000000"`},
		{`{"at":"soon"}`, "at", "soon", `at is "soon": write a whole number that has 64 bits at most`},
		{`{"at":""}`, "at", "", "at is empty"},
		{`{"seq":""}`, "seq", "", "write a whole number"},
		{`{"at":"null"}`, "at", "null", "write a whole number"},
		{`{"at":" 5"}`, "at", " 5", "write a whole number"},
		{`{"at":"9223372036854775808"}`, "at", "9223372036854775808", "64 bits at most"},
		{`{"seq":"-1"}`, "seq", "-1", "64 bits at most"},
		{`{"part":2147483648}`, "part", "2147483648", "32 bits at most"},
		{`{"count":1.5}`, "count", "1.5", "write a whole number"},
		{`{"count":"1"}`, "count", "1", "count is a JSON string: write a number"},
		{`{"sure":"true"}`, "sure", "true", "write true or false"},
		{`{"list":"a"}`, "list", "a", "list is a JSON string: write a list"},
		{`{"list":["a",[]]}`, "list[1]", "[]", "list[1] is a JSON array: write a string"},
		{`{"list":[null]}`, "list[0]", "null", "list[0] is null"},
		{`{"list":[` + strings.Repeat(`"",`, mostItems) + `""]}`, "list", "[" + strings.Repeat(`"",`, 21) + "...", "list has more than 10000 items: send fewer"},
		{`{"inner":{"list":[ ]}}`, "inner.list", "[ ]", "inner.list is an empty list, which would count as left out"},
		{`{"at":"0"}`, "at", "0", "at is 0, which would count as left out: give it a value, or leave it out"},
		{`{"at":"-0"}`, "at", "-0", "at is 0"},
		{`{"inner":[]}`, "inner", "[]", "inner is a JSON array: write an object"},
		{`{"text":""}`, "text", "", "text is empty: give it a value, or leave it out"},
		{`{"text":"a\ud800b"}`, "text", `"a\ud800b"`, `text has half of a surrogate pair, \ud800`},
		{`{"text":"\udc00\ud800"}`, "text", `"\udc00\ud800"`, `\udc00`},
		{`{"text":"\ud83d\n\ude00"}`, "text", `"\ud83d\n\ude00"`, `\ud83d`},
		{`{"text":"\ud83d\ud83d\ude00"}`, "text", `"\ud83d\ud83d\ude00"`, `\ud83d`},
		{`{"te\ud800xt":"a"}`, Whole, `"te\ud800xt"`, `\ud800`},
		{`{"self":{"Said":"\udfff"}}`, "self.Said", `"\udfff"`, `self: no word: Said has half`},
		{`{"self":{"said":"a"}}`, "self.said", "a", `did you mean "Said"?`},
		{`{"self":7}`, "self", "7", "self: write an object"},
		{"{\"many\":[{\"text\":\"caf\xe9\"}]}", "many[0].text", "caf\uFFFD", "many[0].text is not UTF-8"},
		{"{\"raw\":\"caf\xe9\"}", "raw", "caf\uFFFD", "raw is not UTF-8"},
		{`{"other":"` + strings.Repeat("é", 40) + `"}`, "other", strings.Repeat("é", 32) + "...", "unknown"},
		{`[]`, Whole, "[]", "the body is a JSON array: send an object"},
		{`null`, Whole, "null", "the body is a JSON null: send an object"},
		{`{} {}`, Whole, "{}", "there is more behind the JSON value: send one"},
		{`{"text":`, Whole, `{"text":`, "not JSON: unexpected EOF"},
		{`{"text":x}`, Whole, "x}", "not JSON: invalid character 'x'"},
		{` `, Whole, "", "nothing but blanks"},
	} {
		err := Read([]byte(test.text), new(thing))
		if wrong, ok := err.(*Fault); !ok || wrong.Field != test.field || wrong.Value != test.value || !strings.Contains(wrong.Words, test.says) {
			t.Errorf("%.200s: %#v", test.text, err)
		}
	}
}

func TestRead_takesNullForWhatIsLeftOut(t *testing.T) {
	got := thing{Free: "before"}
	if err := Read([]byte(`{"text":null,"part":null,"at":null,"inner":null,"list":null,"many":null,"self":null,"sure":null}`), &got); err != nil || !reflect.DeepEqual(got, thing{Free: "before"}) {
		t.Errorf("%+v %v", got, err)
	}
	var lacking *thing
	if err := Read([]byte("null"), &lacking); err != nil || lacking != nil {
		t.Errorf("%v %v", lacking, err)
	}
	if err := Read([]byte("[]"), &lacking); err == nil {
		t.Error("a list is taken for an object")
	}
}

// What is taken means what encoding/json makes of it, and what that refuses is refused.
func FuzzRead(f *testing.F) {
	for _, seed := range []string{
		`{"text":"a","many":[{"at":"5","raw":[1,{"a":"\\\""}]},{}],"self":{"Said":"b"},"list":["x"],"part":3,"sure":false}`,
		`{"text":"\ud83d\ude00\n","inner":{"inner":{"count":1e2}}}`, ` {"seq" : "7" , "raw" : null } `, "{}\n", `{"te\u0078t":"a"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var got, want thing
		err := Read(text, &got)
		in := json.NewDecoder(bytes.NewReader(text))
		in.DisallowUnknownFields()
		standard := in.Decode(&want)
		switch {
		case err == nil && (standard != nil || !reflect.DeepEqual(got, want)):
			t.Errorf("%q is read as %+v; encoding/json: %+v %v", text, got, want, standard)
		case err != nil && (err.(*Fault).Field == "" || err.(*Fault).Words == ""):
			t.Errorf("%q is refused without words: %#v", text, err)
		}
	})
}
