package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/client"
)

// refusalOf sends the request, which is to be refused with 400, and checks that field and value are told: a
// value only of what is there.
func refusalOf(t *testing.T, h http.Handler, method, path, body string, headers ...string) problem {
	t.Helper()
	got := send(h, method, path, body, headers...)
	var p problem
	if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Code != http.StatusBadRequest || p.Code != client.CodeBadRequest && p.Code != client.CodeTargetNotAllowed {
		t.Errorf("%s %s %q %.200q: %d %.300s", method, path, headers, body, got.Code, got.Body)
	}
	named(t, method+" "+path, &p)
	return p
}

// named checks that a bad request says which field is wrong, and what is in it.
func named(t *testing.T, what string, p *problem) {
	t.Helper()
	lacks := strings.Contains(p.Detail, "missing") || strings.Contains(p.Detail, "is empty") || strings.Contains(p.Detail, "body is required") || strings.Contains(p.Detail, "means everything")
	if p.Status == http.StatusBadRequest && (p.Field == "" || p.Value == "" && !lacks || len(p.Value) > 70 || p.Error != p.Detail) {
		t.Errorf("%s: the problem tells no field or value: %+v", what, p)
	}
}

// What the document says of a parameter, or of a part of a body.
type partOfAPI struct {
	Ref        string               `json:"$ref"`
	Type       any                  `json:"type"` // a name, or a list of some
	Properties map[string]partOfAPI `json:"properties"`
}

type routeOfAPI struct {
	Parameters []struct {
		Name, In string
		Schema   partOfAPI
	}
	RequestBody *struct {
		Content map[string]struct{ Schema partOfAPI }
	}
}

// Whatever route is asked, what means nothing there is refused with the field and the value that are wrong.
func TestRefusals_nameFieldAndValueOnEveryRoute(t *testing.T) {
	text, err := os.ReadFile("testdata/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		Paths      map[string]map[string]routeOfAPI
		Components struct{ Schemas map[string]partOfAPI }
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	n := &fakeNode{}
	h := NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
	routes, parameters, fields := 0, 0, 0
	for pattern, methods := range document.Paths {
		path := strings.NewReplacer("{topic}", "orders.delay", "{target}", "orders", "{id}", "order-7", "{partition}", "0", "{offset}", "7", "{operation}", "1").Replace(pattern)
		for method, route := range methods {
			routes++
			method = strings.ToUpper(method)
			expect := func(field, value, path, body string, headers ...string) {
				t.Helper()
				if p := refusalOf(t, h, method, path, body, headers...); p.Field != field || p.Value != value {
					t.Errorf("%s %s %q %s: field %q, value %q, want %q, %q", method, path, headers, body, p.Field, p.Value, field, value)
				}
			}
			object := "{}"
			if route.RequestBody == nil {
				object = ""
				expect("body", `{"reason":"r"}`, path, `{"reason":"r"}`)
			}
			expect("nonsense", "5", path+"?nonsense=5", object)
			expect("nonsense", "6", path+"?nonsense=5&nonsense=6", object)
			expect("query", "a=%zz", path+"?a=%zz", object)
			for _, p := range route.Parameters {
				wrong := url.QueryEscape("no " + p.Name)
				isText := p.Schema.Type == "string" || p.Schema.Type == "array"
				if p.In == "query" {
					expect(p.Name, "", path+"?"+p.Name+"=", object)
					expect(p.Name, "", path+"?"+p.Name, object)
				}
				switch {
				case p.In == "query" && !isText:
					expect(p.Name, "no "+p.Name, path+"?"+p.Name+"="+wrong, object)
				case p.In == "path" && !isText:
					at := strings.Replace(pattern, "{"+p.Name+"}", "x", 1)
					expect(p.Name, "x", strings.NewReplacer("{topic}", "carillon.dead-letter", "{partition}", "0", "{offset}", "7").Replace(at), object)
				case p.In == "header" && p.Name != "Accept":
					expect(p.Name, "", path, object, p.Name, "")
				default:
					continue
				}
				parameters++
			}
			if route.RequestBody == nil {
				continue
			}
			expect("nonsense", "5", path, `{"nonsense":5}`)
			expect("body", "[7]", path, `[7]`)
			expect("body", "]", path, `{]`)
			var walk func(prefix, before, behind string, part partOfAPI)
			walk = func(prefix, before, behind string, part partOfAPI) {
				part = resolved(document.Components.Schemas, part)
				for name, property := range part.Properties {
					property = resolved(document.Components.Schemas, property)
					if name == "json" { // which is anything
						continue
					}
					fields++
					at := prefix + name
					if property.Properties != nil {
						expect(at, "true", path, before+`{"`+name+`":true}`+behind)
						walk(at+".", before+`{"`+name+`":`, "}"+behind, property)
					} else {
						expect(at, `{"a":1}`, path, before+`{"`+name+`":{"a":1}}`+behind)
						expect(at, "null", path, before+`{"`+name+`":null,"`+name+`":null}`+behind)
					}
				}
			}
			walk("", "", "", route.RequestBody.Content["application/json"].Schema)
		}
	}
	if routes < 27 || parameters < 39 || fields < 80 {
		t.Errorf("walked %d routes, %d parameters, %d fields", routes, parameters, fields)
	}
	if len(n.orders.asked) > 0 || len(n.steps.asked) > 0 || n.raised > 0 || len(n.paused)+len(n.resumed)+len(n.replaced) > 0 {
		t.Errorf("something was done: %+v", n)
	}
}

// resolved follows a reference.
func resolved(schemas map[string]partOfAPI, part partOfAPI) partOfAPI {
	if part.Ref == "" {
		return part
	}
	return schemas[strings.TrimPrefix(part.Ref, schemaPrefix)]
}

// What is well formed and means nothing says so, too.
func TestRefusals_nameFieldAndValueOfWhatMeansNothing(t *testing.T) {
	const at, operations = "/v1/messages/orders.delay/order-7", "/v1/operations"
	n := &fakeNode{}
	h := NewHandler(n, prometheus.NewRegistry(), Anyone(), quiet())
	long := strings.Repeat("x", 300)
	for _, test := range []struct{ method, path, body, header, field, value string }{
		{"GET", "/v1/messages?limit=0", "", "", "limit", "0"},
		{"GET", "/v1/messages?limit=1001", "", "", "limit", "1001"},
		{"GET", "/v1/messages?limit=-1", "", "Accept: application/x-ndjson", "limit", "-1"},
		{"GET", "/v1/messages?cursor=x", "", "", "cursor", "x"},
		{"GET", "/v1/messages?from=1900000000", "", "", "from", "1900000000"},
		{"GET", "/v1/messages?to=1900000000", "", "", "to", "1900000000"},
		{"GET", "/v1/messages?from=0", "", "", "from", "0"},
		{"GET", "/v1/count?topic=a&to=0", "", "", "to", "0"},
		{"GET", "/v1/histogram?to=0", "", "", "to", "0"},
		{"GET", "/v1/messages?from=1900000000001&to=1900000000000", "", "", "to", "1900000000000"},
		{"GET", "/v1/messages?state=asleep", "", "", "state", "asleep"},
		{"GET", "/v1/count?state=waiting&state=asleep", "", "", "state", "asleep"},
		{"GET", "/v1/count?prefix=orders.delay%2F1", "", "", "prefix", "orders.delay/1"},
		{"GET", "/v1/histogram?bounds=1900000000000,soon", "", "", "bounds", "soon"},
		{"GET", "/v1/histogram?bounds=1900000000", "", "", "bounds", "1900000000"},
		{"GET", "/v1/histogram?bounds=1900000000001,1900000000000", "", "", "bounds", "1900000000001 1900000000000"},
		{"GET", "/v1/histogram?by=topic", "", "", "by", "topic"},
		{"GET", "/v1/explain?id=a", "", "", "topic", ""},
		{"GET", "/v1/explain?topic=a", "", "", "id", ""},
		{"GET", "/v1/messages/orders.delay/orders.delay%2F1%2F5?cursor=x", "", "", "cursor", "x"},

		{"POST", "/v1/messages", "{}", "", "topic", ""},
		{"POST", "/v1/messages", `{"topic":"orders","deliver_after":"1h"}`, "", "topic", "orders"},
		{"POST", "/v1/messages", `{"topic":"orders.delay"}`, "", "deliver_at", ""},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_at":"1900000000"}`, "", "deliver_at", "1900000000"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"P80000D"}`, "", "deliver_after", "P80000D"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_at":"9999-01-01T00:00:00Z"}`, "", "deliver_at", "9999-01-01T00:00:00Z"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","expires_after":"soon"}`, "", "expires_after", "soon"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","deliver_to":"a b"}`, "", "deliver_to", "a b"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","deliver_to":"__consumer_offsets"}`, "", "deliver_to", "__consumer_offsets"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","deliver_to":"bills.delay"}`, "", "deliver_to", "bills.delay"},
		{"POST", "/v1/operations", `{"verb":"change","filter":{"topic":"orders.delay"},"reason":"r","change":{"deliver_to":"__consumer_offsets"}}`, "", "change.deliver_to", "__consumer_offsets"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","partition":-1}`, "", "partition", "-1"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","if":"maybe","id":"a"}`, "", "if", "maybe"},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","id":"` + long + `"}`, "", "id", long[:64] + "..."},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","idempotency_key":"` + long + `"}`, "", "idempotency_key", long[:64] + "..."},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","value":{"base64":"?"}}`, "", "value", `{"base64":"?"}`},
		{"POST", "/v1/messages", `{"topic":"orders.delay","deliver_after":"1h","headers":[{"key":"a"},{"key":"deliver-at"}]}`, "", "headers[1].key", "deliver-at"},
		{"PUT", at, `{"deliver_after":"1h","topic":"bills.delay"}`, "", "topic", "bills.delay"},
		{"PUT", at, `{"deliver_after":"1h","if":"absent"}`, "If-Match: *", "if", "absent"},
		{"PUT", at, `{"deliver_after":"1h"}`, "If-Match: 5", "If-Match", "5"},
		{"PUT", at, `{"deliver_after":"1h"}`, `If-None-Match: "5"`, "If-None-Match", `"5"`},
		{"PATCH", at, `{"deliver_after":"P80000D"}`, "", "deliver_after", "P80000D"},
		{"DELETE", at, "", "If-Match: 5", "If-Match", "5"},
		{"POST", at + "/now", "", "If-Match: 0", "If-Match", "0"},
		{"POST", "/v1/batches", `{}`, "", "messages", "0"},
		{"POST", "/v1/batches", `{"messages":[{"topic":"orders.delay"},{"headers":[{"key":"a","value":{"text":5}}]}]}`, "", "messages[1].headers[0].value.text", "5"},

		{"POST", operations, `{"verb":"erase"}`, "", "verb", "erase"},
		{"POST", operations, `{"verb":"cancel","reason":"r"}`, "", "filter", ""},
		{"POST", operations, `{"verb":"cancel","reason":"r","all":true,"filter":{"topic":"a"}}`, "", "all", "true"},
		{"POST", operations, `{"verb":"cancel","filter":{"topic":"a"}}`, "", "reason", ""},
		{"POST", operations, `{"verb":"cancel","filter":{"topic":"a"},"reason":"r","rate":-1}`, "", "rate", "-1"},
		{"POST", operations, `{"verb":"cancel","filter":{"topic":"a","from":"1900000000"},"reason":"r"}`, "", "filter.from", "1900000000"},
		{"POST", operations, `{"verb":"cancel","filter":{"topic":"a","to":"0"},"reason":"r"}`, "", "filter.to", "0"},
		{"POST", operations, `{"verb":"cancel","filter":{"topic":"a","states":[]},"reason":"r"}`, "", "filter.states", "[]"},
		{"POST", operations, `{"verb":"cancel","filter":{"topic":"a","states":["asleep"]},"reason":"r"}`, "", "filter.states", "asleep"},
		{"POST", operations, `{"verb":"cancel","filter":{"topic":"a","code":"c"},"reason":"r"}`, "", "filter.code", "c"},
		{"POST", operations, `{"verb":"change","filter":{"topic":"a"},"reason":"r","change":{"shift":"never"}}`, "", "change.shift", "never"},
		{"POST", operations, `{"verb":"change","filter":{"topic":"a"},"reason":"r","change":{"deliver_at":"1900000000"}}`, "", "change.deliver_at", "1900000000"},
		{"POST", operations, `{"verb":"cancel","filter":{"topic":"a"},"reason":"r"}`, "Idempotency-Key: " + long, "Idempotency-Key", long[:64] + "..."},
		{"GET", operations + "/x", "", "", "operation", "x"},
		{"POST", operations + "/1/stop?reason=" + strings.Repeat(long, 4), "", "", "reason", long[:64] + "..."},

		{"GET", "/v1/dead-letters?limit=0", "", "", "limit", "0"},
		{"GET", "/v1/dead-letters?cursor=x", "", "", "cursor", "x"},
		{"GET", "/v1/dead-letters?to=0", "", "", "to", "0"},
		{"GET", "/v1/dead-letters?to=1900000000", "", "", "to", "1900000000"},
		{"GET", "/v1/dead-letters/carillon.dead-letter/0/9223372036854775808", "", "", "offset", "9223372036854775808"},
		{"POST", "/v1/cluster/replace", `{}`, "", "member", ""},

		{"GET", "/v1/messages/orders.delay/..", "", "", "path", "/v1/messages/orders.delay/.."},
		{"DELETE", "/v1/messages/orders.delay/./", "", "", "path", "/v1/messages/orders.delay/./"},
		{"GET", "/v1//messages", "", "", "path", "/v1//messages"},
	} {
		var headers []string
		if name, value, ok := strings.Cut(test.header, ": "); ok {
			headers = []string{name, value}
		}
		if p := refusalOf(t, h, test.method, test.path, test.body, headers...); p.Field != test.field || p.Value != test.value {
			t.Errorf("%s %s %s %.100s: field %q, value %q, want %q, %q", test.method, test.path, test.header, test.body, p.Field, p.Value, test.field, test.value)
		}
	}
	if len(n.orders.asked) > 0 || len(n.steps.asked) > 0 {
		t.Errorf("something was done: %+v", n)
	}
}

// A header that comes twice is not taken for the first of the two.
func TestRefusals_ofHeadersThatComeTwice(t *testing.T) {
	h := NewHandler(&fakeNode{}, prometheus.NewRegistry(), Anyone(), quiet())
	request := httptest.NewRequest("DELETE", "/v1/messages/orders.delay/order-7", nil)
	request.Header["If-Match"] = []string{`"5"`, `"6"`}
	var p problem
	got := httptest.NewRecorder()
	h.ServeHTTP(got, request)
	if err := json.Unmarshal(got.Body.Bytes(), &p); err != nil || got.Code != http.StatusBadRequest || p.Field != "If-Match" || p.Value != `"6"` {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}
