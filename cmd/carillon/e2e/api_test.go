package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// startDev runs `carillon dev` at the addresses that documents print.
func startDev(t *testing.T) {
	t.Helper()
	for _, addr := range []string{"127.0.0.1:7401", "127.0.0.1:7301", "127.0.0.1:9092"} {
		needsAddr(t, addr)
	}
	dev := start(t, "carillon dev", nil, buildCarillon(t), "dev", "--data-dir", t.TempDir())
	t.Cleanup(dev.stop)
	await(t, patience, "carillon dev", func() bool { return strings.Contains(string(tail(dev.log, 1<<20)), "running until") })
}

// consoleBlocks returns the commands of a document's console blocks, and what they print.
func consoleBlocks(t *testing.T, path string) (commands, prints []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?s)\n```console\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
		for _, part := range strings.Split("\n"+block[1], "\n$ ")[1:] {
			// What is printed begins with the first line at the margin.
			at := regexp.MustCompile(`\n\S`).FindStringIndex(part)
			if at == nil {
				t.Fatalf("%s prints nothing", part)
			}
			commands, prints = append(commands, part[:at[0]]), append(prints, part[at[0]+1:])
		}
	}
	return commands, prints
}

// The examples of docs/api.md do what is printed beside them, in their order.
func TestAPIExamples_runAsPrinted(t *testing.T) {
	needs(t, "curl")
	startDev(t)
	commands, prints := consoleBlocks(t, "../../../docs/api.md")
	if len(commands) < 10 {
		t.Fatalf("found %d examples", len(commands))
	}
	for i, command := range commands {
		got := strings.TrimSpace(run(t, t.TempDir(), nil, "bash", "-e", "-c", command))
		want := strings.ReplaceAll(regexp.QuoteMeta(prints[i]), `\.\.\.`, "(?s:.*)")
		if !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("$ %s\ngot  %s\nwant %s", command, got, prints[i])
		}
	}
}

const schemathesis = "schemathesis==4.32.5"

// schemathesisProgram returns the program, which is installed once.
func schemathesisProgram(t *testing.T) string {
	t.Helper()
	dir := cache(t, "python-"+strings.ReplaceAll(schemathesis, "==", "-"))
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err != nil {
		run(t, dir, nil, "python3", "-m", "venv", dir)
		run(t, dir, nil, filepath.Join(dir, "bin", "python"), "-m", "pip", "install", "--quiet", schemathesis)
		write(t, complete, nil)
	}
	return filepath.Join(dir, "bin", "schemathesis")
}

// Whatever is made of the served document, no node fails, and no answer comes that the document does not
// tell of.
func TestAPI_answersAsItsDocumentSays(t *testing.T) {
	needs(t, "python3")
	program := schemathesisProgram(t)
	startDev(t)
	const node = "http://127.0.0.1:7401"
	out := run(t, t.TempDir(), nil, "timeout", "240", program, "run", node+"/v1/openapi.json", "--url", node, "--no-color",
		"--checks", "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance,unsupported_method",
		"--phases", "examples,coverage,fuzzing", "--max-examples", "40", "--seed", "15", "--generation-database", "none")
	summary := out[max(0, strings.Index(out, "Test cases:")):]
	t.Log(summary)
	if !regexp.MustCompile(`(\d{3,}) generated, .*passed`).MatchString(summary) {
		t.Errorf("too little was tried:\n%s", out)
	}
}
