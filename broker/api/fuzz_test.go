package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"
)

// Whatever is asked, no handler fails: an answer is a success, or a problem that names its code and a remedy;
// and what is refused has not been done.
func FuzzRequests(f *testing.F) {
	for _, seed := range [][4]string{
		{"GET", "/v1/messages", "topic=orders.delay&limit=5&cursor=AQ&from=1&to=x&state=waiting", ""},
		{"GET", "/v1/histogram", "bounds=1800000000000,1800000060000&by=target&prefix=a/b", ""},
		{"GET", "/v1/count", "topic=%zz&stale=true", ""},
		{"GET", "/v1/explain", "topic=a&id=b", ""},
		{"GET", "/v1/messages/orders.delay/a%2Fb", "cursor=", ""},
		{"POST", "/v1/messages", "", `{"topic":"orders.delay","deliver_after":"1h","value":{"base64":"AA=="},"headers":[{"key":"a","value":null}]}`},
		{"POST", "/v1/batches", "", `{"messages":[{"topic":"orders.delay","deliver_at":"1900000000123","partition":-1},{}]}`},
		{"PUT", "/v1/messages/orders.delay/x", "", `{"if":"present","expires_after":"P1D","deliver_after":"PT1S"}`},
		{"PATCH", "/v1/messages/orders.delay/order-7", "", `{"value":null,"headers":[],"partition":3}`},
		{"DELETE", "/v1/messages/orders.delay/api%2F7", "reason=x", ""},
		{"POST", "/v1/messages/orders.delay/orders.delay%2F1%2F5/now", "", ""},
		{"POST", "/v1/topics/orders.delay/pause", "", `{"who":"a","why":"b"}`},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], "*")
	}
	n := &fakeNode{}
	h := handlerOf(n)
	f.Fuzz(func(t *testing.T, method, path, query, body, condition string) {
		request := &http.Request{Method: method, URL: &url.URL{RawQuery: query}, Header: http.Header{}, Host: "localhost", ProtoMajor: 1, ProtoMinor: 1}
		unescaped, err := url.PathUnescape(path)
		if err != nil || method == "" || method == http.MethodConnect || !strings.HasPrefix(unescaped, "/v1/") || strings.Contains(query, "state=") {
			return // not sent by net/http; the store of this test has no states
		}
		request.URL.Path, request.URL.RawPath = unescaped, path
		request = request.WithContext(t.Context())
		request.Header.Set("If-Match", condition)
		request.Body = http.NoBody
		if body != "" {
			full := httptest.NewRequest("POST", "/", strings.NewReader(body))
			request.Body, request.ContentLength = full.Body, full.ContentLength
		}
		n.orders.asked = nil
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, request)
		if answer.Code >= 300 && answer.Code < 400 {
			return // to the clean form of the path
		}
		if answer.Code == http.StatusOK {
			return
		}
		var p problem
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || answer.Code >= 500 || p.Status != answer.Code || p.Code == "" || p.Detail == "" {
			t.Errorf("%s %s?%s %q: %d %s", method, path, query, body, answer.Code, answer.Body)
		}
		if len(n.orders.asked) > 0 {
			t.Errorf("%s %s?%s %q: %d, and %+v was asked of the log", method, path, query, body, answer.Code, n.orders.asked)
		}
		if !utf8.Valid(answer.Body.Bytes()) {
			t.Errorf("%q is not UTF-8", answer.Body)
		}
	})
}
