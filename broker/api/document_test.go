package api

import (
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A change of the API shows in this file: what was told before must stay true.
func TestDocument_isTheGoldenOne(t *testing.T) {
	const path = "testdata/openapi.json"
	answer := httptest.NewRecorder()
	NewHandler(&fakeNode{}, prometheus.NewRegistry(), Anyone(), quiet()).ServeHTTP(answer, httptest.NewRequest("GET", specPath, nil))
	if answer.Code != http.StatusOK || answer.Header().Get("Content-Type") != "application/openapi+json" {
		t.Fatalf("%d %v", answer.Code, answer.Header())
	}
	if *update {
		if err := os.WriteFile(path, answer.Body.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), answer.Body.String()); diff != "" {
		t.Errorf("the API differs from %s; if that is meant, run go test ./broker/api -update (-want +got):\n%s", path, diff)
	}
}

// Nothing of the document, nor of an answer, leads to a foreign host, and numbers of 64 bits are texts.
func TestDocument_staysAtHome(t *testing.T) {
	h := NewHandler(&fakeNode{}, prometheus.NewRegistry(), Anyone(), quiet())
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest("GET", specPath, nil))
	if text := answer.Body.String(); strings.Contains(text, "http://") || strings.Contains(text, "https://") || strings.Contains(text, "$schema") {
		t.Error("the document names another host")
	}
	var document struct {
		Servers    []struct{ URL string }
		Components struct {
			Schemas map[string]struct{ Properties map[string]struct{ Type any } }
		}
	}
	if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil {
		t.Fatal(err)
	}
	if len(document.Servers) != 1 || document.Servers[0].URL != ".." {
		t.Errorf("servers %+v", document.Servers)
	}
	for schema, field := range map[string]string{"Answer": "seq", "Message": "due", "Outcome": "offset", "Problem": "since", "NodeExplanation": "applied_index", "NodeWaiting": "seq", "NodeLifeEvent": "by"} {
		if got := document.Components.Schemas[schema].Properties[field].Type; got != "string" {
			t.Errorf("%s.%s is a %v", schema, field, got)
		}
	}
	for _, path := range []string{"/docs", "/v1/docs", "/schemas/Answer.json", "/openapi.yaml"} {
		answer := httptest.NewRecorder()
		if h.ServeHTTP(answer, httptest.NewRequest("GET", path, nil)); answer.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, answer.Code)
		}
	}
	answer = httptest.NewRecorder()
	if h.ServeHTTP(answer, httptest.NewRequest("GET", countPath, nil)); answer.Header().Get("Link") != "" || strings.Contains(answer.Body.String(), "$schema") {
		t.Errorf("%v %s", answer.Header(), answer.Body)
	}
}
