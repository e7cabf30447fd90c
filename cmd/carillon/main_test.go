package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A node repeats what producers wrote, as the name of a header of a dead letter that is replayed.
func TestRun_printsErrorsThatActOnNoTerminal(t *testing.T) {
	node := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"status":400,"code":"bad-request","detail":"deliver-\u001b]0;owned\u0007 \"1\" is not a header Carillon knows"}`)
	}))
	defer node.Close()
	var stderr strings.Builder
	code := run(t.Context(), []string{"dead-letters", "replay", "carillon.dead-letter/0/0", "--api", node.URL}, strings.NewReader(""), io.Discard, &stderr)
	if got := stderr.String(); code != exitFailed || strings.ContainsAny(got, "\x1b\x07") || !strings.Contains(got, `deliver-\x1b]0;owned\a`) {
		t.Errorf("exit %d, printed %q", code, got)
	}
}
