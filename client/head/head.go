// Package head reads what a request says beside its body, so that it cannot be taken for anything else than
// what its sender wrote. Nodes and the Carillon of package clienttest read with it; package body is its other
// half.
package head

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/body"
)

// CheckPath refuses a path that http.ServeMux would redirect to what is left without its dots and double slashes:
// with an id of dots that is another message, or the list of all, and behind a proxy that takes a prefix off it
// would be a path without the prefix. So it refuses a path that ends in a slash, as where an id was not set. One that
// is no text names nothing: it could not be told as it is.
func CheckPath(u *url.URL) *client.Problem {
	path := u.EscapedPath()
	if !utf8.ValidString(u.Path) {
		return client.BadField("path", path, "is not UTF-8: percent-encode the bytes of a text in UTF-8")
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if segment == "." || segment == ".." || segment == "" && path != "/" && path != "" {
			return client.BadField("path", path, fmt.Sprintf("has the segment %q, which is none of its own: write the dots of an id as %%2E, its slashes as %%2F", segment))
		}
	}
	return nil
}

// several is the parameter that may come more than once.
const several = "state"

// Query returns the parameters of a request, or what is unclear about them.
func Query(u *url.URL) (url.Values, *client.Problem) {
	asked, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, client.BadField("query", u.RawQuery, fmt.Sprintf("cannot be read: %v: percent-encode what it holds", err))
	}
	for name, values := range asked {
		if slices.Contains(values, "") { // as where a variable was not set: it would count for nothing
			return nil, client.BadField(name, "", "is empty: give it a value, or leave it out")
		}
		if len(values) > 1 && name != several {
			return nil, client.BadField(name, values[1], fmt.Sprintf("is there beside %q: give it once", values[0]))
		}
		if isNoText := func(s string) bool { return !utf8.ValidString(s) }; isNoText(name) || slices.ContainsFunc(values, isNoText) {
			return nil, client.BadField("query", u.RawQuery, "is not UTF-8: percent-encode the bytes of a text in UTF-8")
		}
	}
	return asked, nil
}

// CheckKind refuses a body that is not said to be JSON: a form of a web page, above all. JSON is UTF-8.
func CheckKind(given http.Header) *client.Problem {
	said := given.Get("Content-Type")
	kind, parameters, err := mime.ParseMediaType(said)
	charset, has := parameters["charset"]
	if said == "" || err == nil && kind == "application/json" && (!has || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return &client.Problem{Status: http.StatusUnsupportedMediaType, Code: client.CodeBadRequest, Detail: fmt.Sprintf("Content-Type is %q: send JSON in UTF-8, and say Content-Type: application/json", said)}
}

// Unread refuses a body, of which this is the beginning, where none is taken.
func Unread(text string) *client.Problem {
	return client.BadField(body.Whole, text, "comes with a request that takes none, and would count for nothing: leave it out; a reason goes into the path's query, ?reason=...")
}

// Conditions are the headers that say what a write depends on.
func Conditions() []string { return []string{"If-Match", "If-None-Match", "Idempotency-Key"} }

// CheckConditions refuses one of these that is empty, as where a variable was not set, or comes twice: it would
// count for nothing, or only the first would.
func CheckConditions(given http.Header) *client.Problem {
	for _, name := range Conditions() {
		switch values := given.Values(name); {
		case len(values) > 1:
			return client.BadField(name, values[1], fmt.Sprintf("is there beside %q: give it once", values[0]))
		case len(values) == 1 && values[0] == "":
			return client.BadField(name, "", "is empty: give it a value, or leave it out")
		}
	}
	return nil
}

// Unused refuses a condition that the route has no use for: who sent it counts on it. A read may have
// If-None-Match, as browsers and caches send it by themselves: it counts for nothing there.
func Unused(r *http.Request, takes func(name string) bool) *client.Problem {
	isRead := r.Method == http.MethodGet || r.Method == http.MethodHead
	for _, name := range Conditions() {
		if isRead && name == "If-None-Match" {
			continue
		}
		if value := r.Header.Get(name); value != "" && !takes(name) {
			return client.BadField(name, value, "counts for nothing in this request: leave it out; in a batch each message may have if and idempotency_key")
		}
	}
	return nil
}
