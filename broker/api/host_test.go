package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/carillonmq/carillon/client"
)

// askAs sends one request with the Host header to the node on loopback whose own
// address is given.
func askAs(host, address string) *httptest.ResponseRecorder {
	handler := OnLoopback(NewHandler(&fakeNode{}, prometheus.NewRegistry(), Anyone(), quiet()), address, quiet())
	request := httptest.NewRequest(http.MethodGet, "/livez", nil)
	request.Host = host
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, request)
	return answer
}

func TestOnLoopback_answersToItsOwnNames(t *testing.T) {
	for _, host := range []string{"localhost", "LOCALHOST:7401", "127.0.0.1", "127.8.9.1:80", "[::1]", "[::1]:7401", "n1.lan:7401", "N1.lan:1",
		"localhost.", "localhost.:7401", "n1.lan.:7401"} {
		if answer := askAs(host, "n1.lan:7401"); answer.Code != http.StatusOK {
			t.Errorf("%q is answered with %d %s", host, answer.Code, answer.Body)
		}
	}
}

func TestOnLoopback_refusesNamesThatWereMadeToResolveToIt(t *testing.T) {
	for _, host := range []string{"evil.example:7401", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "evil.example.", "n2.lan:7401",
		"10.0.0.1", "0.0.0.0:7401", "", "."} {
		if answer := askAs(host, "n1.lan:7401"); answer.Code != http.StatusForbidden {
			t.Errorf("%q is answered with %d %s", host, answer.Code, answer.Body)
		}
	}
	for address, names := range map[string]string{
		"n1.lan:7401":    "localhost, 127.0.0.1, [::1] and n1.lan",
		"127.0.0.1:7401": "localhost, 127.0.0.1 and [::1]",
		"localhost:7401": "localhost, 127.0.0.1 and [::1]",
	} {
		words := `Host is "evil.example:7401": nothing authenticates the callers, so this node answers to ` + names +
			` only; use one of them, or say api.allow_unauthenticated: true where the network is trusted`
		want := problem{client.Problem{Title: "Forbidden", Status: http.StatusForbidden, Code: client.CodeForbidden, Detail: words}, words}
		answer := askAs("evil.example:7401", address)
		var got problem
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil || answer.Header().Get("Content-Type") != problemType {
			t.Errorf("at %s it is answered %s: %v", address, answer.Body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at %s, -want +got:\n%s", address, diff)
		}
	}
}
