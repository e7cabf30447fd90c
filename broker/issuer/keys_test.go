package issuer

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// An issuer behind a proxy answers with a page, which names the request.
func TestTell_saysLittleOfAPage(t *testing.T) {
	var log bytes.Buffer
	i := &Issuer{log: slog.New(slog.NewTextHandler(&log, nil))}
	for request := range 3 {
		i.tell(fmt.Errorf("503 Service Unavailable: <html>%s\nrequest %d", strings.Repeat("ü", 1<<20), request))
	}
	if problem := i.Problem(); len(problem) > 2*mostShown || !utf8.ValidString(problem) || !strings.Contains(problem, "503 Service Unavailable: <html>ü") {
		t.Errorf("the problem has %d bytes: %.300s", len(problem), problem)
	}
	if lines := strings.Count(log.String(), "\n"); lines != 1 || log.Len() > 4*mostShown {
		t.Errorf("%d lines of %d bytes for one cause", lines, log.Len())
	}
}

func TestClient_takesNoHalfOfABundle(t *testing.T) {
	a := newAuthority(t, httptest.NewTLSServer)
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.server.Certificate().Raw})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	i, _ := a.known(func(c *Config) { c.CA = ca })
	for what, text := range map[string][]byte{"": slices.Concat(block, block), "does not end": slices.Concat(block, block[:len(block)-40])} {
		if err := os.WriteFile(ca, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := i.client(); (err == nil) != (what == "") || err != nil && !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
}
