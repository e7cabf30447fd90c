package issuer

import (
	"bytes"
	"fmt"
	"log/slog"
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
