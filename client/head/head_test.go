package head

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/carillonmq/carillon/client"
)

// expect fails unless the problem names field and value; "" and "": there is none.
func expect(t *testing.T, what string, p *client.Problem, field, value string) {
	t.Helper()
	var told client.Problem
	if p != nil {
		told = *p
	}
	if (p != nil) != (field != "") || told.Field != field || told.Value != value || p != nil && p.Code != client.CodeBadRequest {
		t.Errorf("%s: %+v, want field %q and value %q", what, p, field, value)
	}
}

func TestCheckPath_refusesWhatWouldBeRedirected(t *testing.T) {
	for path, isGood := range map[string]bool{
		"/": true, "/v1/messages": true, "/v1/messages/a/%2E%2E": true, "/v1/messages/a/b%2F%2Fc": true, "/v1/messages/a/...": true, "/v1/messages/a/": false, "/v1/": false,
		"/v1/messages/..": false, "/v1/./messages": false, "/v1//messages": false, "/..": false,
		"//v1/messages": false, "//": false, "///v1": false, "/v1/messages//": false, "/v1/messages/a/%ff": false, "/v1/messages/a/%C3%BC": true,
	} {
		u, err := url.ParseRequestURI(path) // as a server does: of two slashes at the beginning, too
		if err != nil {
			t.Fatal(err)
		}
		field, value := "path", path
		if isGood {
			field, value = "", ""
		}
		expect(t, path, CheckPath(u), field, value)
	}
}

func TestQuery_isReadInOneWay(t *testing.T) {
	for query, wrong := range map[string][2]string{
		"":                              {},
		"topic=a&state=waiting&state=b": {},
		"topic=%C3%BC":                  {},
		"topic=a&topic=b":               {"topic", "b"},
		"topic=%zz":                     {"query", "topic=%zz"},
		"topic=a;b":                     {"query", "topic=a;b"},
		"topic=%ff":                     {"query", "topic=%ff"},
		"%ff=a":                         {"query", "%ff=a"},
	} {
		_, p := Query(&url.URL{RawQuery: query})
		expect(t, query, p, wrong[0], wrong[1])
	}
}

func TestConditions_countOnceOrAreRefused(t *testing.T) {
	for _, name := range Conditions() {
		expect(t, "none", CheckConditions(http.Header{}), "", "")
		expect(t, "one", CheckConditions(http.Header{name: {"a"}}), "", "")
		expect(t, "empty", CheckConditions(http.Header{name: {""}}), name, "")
		expect(t, "two", CheckConditions(http.Header{name: {"a", "b"}}), name, "b")

		takesIt, takesNone := func(n string) bool { return n == name }, func(string) bool { return false }
		for _, method := range []string{http.MethodPost, http.MethodGet} {
			r := httptest.NewRequest(method, "/", nil)
			r.Header.Set(name, "a")
			expect(t, "used", Unused(r, takesIt), "", "")
			if method == http.MethodGet && name == "If-None-Match" { // as a cache sends it
				expect(t, "of a cache", Unused(r, takesNone), "", "")
			} else {
				expect(t, "unused", Unused(r, takesNone), name, "a")
			}
		}
	}
}
