package house

import (
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strings"
	"testing"
)

// A rule says what the files of a package that are not tests may import of ours,
// and which of the big dependencies.
type rule struct {
	ours []string
	big  []string
}

// The big dependencies stay at their door: a prefix that only some packages import.
var big = []string{
	"github.com/hashicorp/raft", "github.com/twmb/franz-go", "go.etcd.io/bbolt",
	"net/http", "github.com/spf13/", "github.com/prometheus/",
	"github.com/coreos/go-oidc", "github.com/go-jose/",
}

// The import table. A package that is not in it fails the test: decide where it belongs.
var rules = map[string]rule{
	"wheel":                         {},
	"wheel/timer":                   {ours: []string{"wheel"}},
	"storage":                       {ours: []string{"storage/alive", "storage/bulk", "storage/codec", "storage/disk", "storage/memtable", "storage/merge", "storage/name", "storage/outcomes", "storage/pause", "storage/replayed", "storage/segment"}, big: []string{"go.etcd.io/bbolt"}},
	"storage/alive":                 {ours: []string{"storage/codec", "storage/disk"}},
	"storage/bulk":                  {ours: []string{"storage/codec"}},
	"storage/codec":                 {},
	"storage/disk":                  {ours: []string{"storage/codec"}, big: []string{"go.etcd.io/bbolt"}},
	"storage/internal/golden":       {},
	"storage/memtable":              {ours: []string{"storage/alive", "storage/codec", "storage/name", "storage/segment"}},
	"storage/merge":                 {ours: []string{"storage/alive", "storage/disk", "storage/name", "storage/segment"}},
	"storage/name":                  {ours: []string{"storage/codec"}},
	"storage/outcomes":              {ours: []string{"storage/codec", "storage/disk", "storage/name"}},
	"storage/pause":                 {ours: []string{"storage/codec"}},
	"storage/replayed":              {ours: []string{"storage/codec"}},
	"storage/segment":               {ours: []string{"storage/alive", "storage/codec", "storage/disk", "storage/name"}, big: []string{"go.etcd.io/bbolt"}},
	"raftfsm":                       {ours: []string{"storage", "storage/bulk", "storage/codec", "storage/name", "storage/outcomes", "storage/pause", "storage/replayed"}, big: []string{"github.com/hashicorp/raft"}},
	"raftfsm/raftlog":               {ours: []string{"raftfsm", "storage", "storage/codec", "storage/disk"}, big: []string{"github.com/hashicorp/raft", "go.etcd.io/bbolt"}},
	"raftfsm/member":                {ours: []string{"raftfsm", "storage", "storage/codec"}},
	"raftfsm/repeats":               {},
	"raftfsm/node":                  {ours: []string{"raftfsm/repeats", "raftfsm", "raftfsm/member", "raftfsm/raftlog", "storage"}, big: []string{"github.com/hashicorp/raft"}},
	"client/body":                   {},
	"client":                        {ours: []string{"client/body"}, big: []string{"github.com/twmb/franz-go", "net/http"}},
	"client/head":                   {ours: []string{"client", "client/body"}, big: []string{"net/http"}},
	"client/clienttest":             {ours: []string{"client", "client/body", "client/head"}, big: []string{"net/http"}},
	"client/clienttest/conformance": {ours: []string{"client"}, big: []string{"net/http"}},
	"broker":                        {ours: []string{"broker/bulk", "broker/clock", "broker/config", "broker/deadletter", "broker/deliver", "broker/fitness", "broker/ingest", "broker/mailbox", "broker/message", "broker/order", "broker/query", "broker/report", "broker/schedule", "client", "raftfsm", "raftfsm/member", "raftfsm/node", "storage", "storage/outcomes", "storage/pause"}, big: []string{"github.com/prometheus/"}},
	"broker/bulk":                   {ours: []string{"broker/deadletter", "broker/message", "broker/order", "broker/query", "client", "raftfsm", "storage", "storage/bulk", "storage/name", "storage/outcomes"}}, // outcomes: as what an answer to a key is kept
	"broker/clock":                  {},
	"broker/mailbox":                {},
	"broker/digest":                 {},
	"broker/deadletter":             {ours: []string{"broker/message", "broker/order", "client", "raftfsm", "storage", "storage/codec", "storage/replayed"}},
	"broker/query":                  {ours: []string{"broker/message", "client", "raftfsm", "storage", "storage/outcomes"}},
	"broker/order":                  {ours: []string{"broker/config", "broker/ingest", "broker/message", "broker/query", "client", "raftfsm", "storage", "storage/name", "storage/outcomes"}},
	"broker/report":                 {},
	"broker/fitness":                {ours: []string{"broker/report"}},
	"broker/schedule":               {ours: []string{"broker/mailbox", "broker/report", "raftfsm", "storage", "storage/pause", "wheel", "wheel/timer"}},
	"broker/deliver":                {ours: []string{"broker/digest", "broker/mailbox", "broker/message", "broker/report", "broker/schedule", "raftfsm", "storage", "storage/name", "storage/outcomes"}},
	"broker/ingest":                 {ours: []string{"broker/config", "broker/digest", "broker/message", "broker/report", "raftfsm", "storage"}},
	"broker/message":                {ours: []string{"storage", "storage/codec"}},
	"broker/config":                 {ours: []string{"broker/access", "broker/message"}, big: []string{"github.com/spf13/"}},
	"broker/kafka":                  {ours: []string{"broker/deadletter", "broker/deliver", "broker/ingest", "broker/kafka/reach", "broker/message", "client"}, big: []string{"github.com/twmb/franz-go"}},
	"broker/kafka/reach":            {ours: []string{"broker/config", "broker/reload", "raftfsm/repeats"}, big: []string{"github.com/twmb/franz-go"}},
	"broker/access":                 {ours: []string{"broker/reload"}},
	"broker/certs":                  {ours: []string{"broker/reload", "raftfsm/repeats"}},
	"broker/issuer":                 {ours: []string{"broker/access", "broker/reload"}, big: []string{"net/http", "github.com/coreos/go-oidc", "github.com/go-jose/"}},
	"broker/reload":                 {},
	"broker/api":                    {ours: []string{"broker", "broker/access", "broker/bulk", "broker/config", "broker/deadletter", "broker/order", "broker/query", "client", "client/body", "client/head", "raftfsm", "raftfsm/repeats"}, big: []string{"net/http", "github.com/prometheus/", "github.com/danielgtaylor/huma"}},
	"broker/brokertest":             {ours: []string{"*"}, big: big},
	"broker/brokertest/ledger":      {},
	"broker/brokertest/draw":        {},
	"broker/brokertest/history":     {ours: []string{"client", "raftfsm"}, big: []string{"net/http"}},
	"broker/brokertest/mutants":     {},
	"broker/brokertest/play":        {},
	"broker/brokertest/wire":        {},
	"broker/brokertest/kfiles":      {},
	"broker/brokertest/sim":         {ours: []string{"broker/brokertest", "broker/brokertest/draw", "broker/brokertest/mutants"}},
	"broker/internal/house":         {},
	"broker/internal/kafkatest":     {big: []string{"github.com/twmb/franz-go"}},
	"broker/internal/logtest":       {},
	"broker/internal/nodetest":      {ours: []string{"raftfsm/member", "raftfsm/node", "storage"}, big: []string{"github.com/twmb/franz-go"}},
	"cmd/carillon":                  {ours: []string{"*"}, big: []string{"github.com/twmb/franz-go", "net/http", "github.com/spf13/", "github.com/prometheus/"}},
	"cmd/carillon/e2e":              {ours: []string{"*"}, big: big},
	"cmd/carillon/e2e/torture":      {},

	"cmd/carillon/internal/contexts": {ours: []string{"broker/reload"}},
	"cmd/carillon/internal/dev":      {ours: []string{"broker/api", "broker/config", "client"}, big: []string{"github.com/twmb/franz-go"}},
	"cmd/carillon/internal/table":    {},
	"cmd/carillon/internal/terminal": {},
	"cmd/carillon/internal/top":      {ours: []string{"broker", "client", "cmd/carillon/internal/table"}, big: []string{"github.com/prometheus/"}},
}

func TestImports_followTheTable(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		rule, ok := rules[s.pkg]
		if !ok {
			t.Errorf("%s: package %s is not in the import table", s.path, s.pkg)
			continue
		}
		for _, path := range s.imports() {
			if ours, ok := strings.CutPrefix(path, module+"/"); ok {
				if !slices.Contains(rule.ours, ours) && !slices.Contains(rule.ours, "*") {
					t.Errorf("%s: %s must not import %s", s.path, s.pkg, ours)
				}
				continue
			}
			for _, prefix := range big {
				if strings.HasPrefix(path, prefix) && !slices.Contains(rule.big, prefix) {
					t.Errorf("%s: %s must not import %s", s.path, s.pkg, path)
				}
			}
		}
	}
}

func TestWheel_needsTheStandardLibraryOnly(t *testing.T) {
	for _, s := range sources(t) {
		if s.pkg != "wheel" || s.test {
			continue
		}
		for _, path := range s.imports() {
			if strings.Contains(path, ".") || path == "time" || path == "sync" {
				t.Errorf("%s: the pure structure must not import %s", s.path, path)
			}
		}
	}
}

func TestFiles_areShort(t *testing.T) {
	const most = 500
	for _, s := range sources(t) {
		if s.lines > most {
			t.Errorf("%s has %d lines, %d at most: split it by idea", s.path, s.lines, most)
		}
	}
}

// fullRooms are the packages of more files than enough to ask whether they are two,
// and the number at which to ask again.
var fullRooms = map[string]int{
	"cmd/carillon":      31, // groups verbs by noun; what can stand alone is in rooms below it
	"storage":           21, // one Store: what Apply changes, what is on disk, ids, and what is listed and counted of it, share its locks
	"raftfsm/node":      17, // one member of a group: the loops beside raft, and what raft speaks through, share its state
	"raftfsm":           16, // one FSM: commands, their forms, and what each does, share its work
	"broker/api":        18, // a file of handlers for each noun of the API, behind one table of routes
	"broker/brokertest": 26, // what a script can do to a cluster, and what is seen of it, share the player's state
}

func TestPackages_areOneRoom(t *testing.T) {
	const enough = 15
	files := map[string]int{}
	for _, s := range sources(t) {
		if !s.test {
			files[s.pkg]++
		}
	}
	for pkg, n := range files {
		if n > max(enough, fullRooms[pkg]) {
			t.Errorf("%s has %d files: is it two rooms? If it is one, say so in fullRooms", pkg, n)
		}
	}
	for pkg := range fullRooms {
		if files[pkg] <= enough {
			t.Errorf("%s has %d files: take it out of fullRooms", pkg, files[pkg])
		}
	}
}

func TestPackages_sayWhatTheyAre(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			documented[s.pkg] = documented[s.pkg] || s.file.Doc != nil
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

// Where time is data: a clock or a random number there would make nodes differ.
var clockless = []string{"wheel", "storage", "storage/alive", "storage/codec", "storage/disk", "storage/merge", "storage/name", "storage/outcomes", "storage/replayed", "storage/segment", "raftfsm", "raftfsm/member"}

// What neither Apply nor judgement reaches: a new disk gets a random incarnation.
var clocked = []string{"raftfsm/member/identity.go"}

func TestClocks_areOnlyWhereTheyBelong(t *testing.T) {
	banned := map[string][]string{
		"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	}
	for _, s := range sources(t) {
		if s.test || !slices.Contains(clockless, s.pkg) || slices.Contains(clocked, s.path) {
			continue
		}
		for _, path := range s.imports() {
			if path == "math/rand" || path == "math/rand/v2" || path == "crypto/rand" {
				t.Errorf("%s imports %s: what Apply decides must be the same on every node", s.path, path)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := call.X.(*ast.Ident); ok && slices.Contains(banned[x.Name], call.Sel.Name) {
				t.Errorf("%s calls %s.%s: time is an argument wherever Apply may come", s.path, x.Name, call.Sel.Name)
			}
			return true
		})
	}
}

func TestPackages_haveNoHiddenState(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, decl := range s.file.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv == nil && decl.Name.Name == "init" {
					t.Errorf("%s has an init function", s.path)
				}
			case *ast.GenDecl:
				if decl.Tok == token.VAR {
					for _, spec := range decl.Specs {
						checkVariable(t, s, spec.(*ast.ValueSpec))
					}
				}
			}
		}
	}
}

// checkVariable lets pass what is written once: errors, compile-time assertions,
// compiled patterns, tables, and the version that the linker sets.
func checkVariable(t *testing.T, s source, spec *ast.ValueSpec) {
	t.Helper()
	for i, name := range spec.Names {
		if name.Name == "_" || s.path == "cmd/carillon/version.go" {
			continue
		}
		if i >= len(spec.Values) {
			t.Errorf("%s: package variable %s is not set where it is declared", s.path, name.Name)
			continue
		}
		switch value := spec.Values[i].(type) {
		case *ast.CallExpr, *ast.CompositeLit:
		case *ast.SelectorExpr:
			if !strings.HasPrefix(value.Sel.Name, "Err") { // one that a room below returns
				t.Errorf("%s: package variable %s is what another package has", s.path, name.Name)
			}
		case *ast.UnaryExpr:
			t.Errorf("%s: package variable %s points to shared state", s.path, name.Name)
		default:
			t.Errorf("%s: package variable %s is a plain %T: make it a constant or pass it in", s.path, name.Name, value)
		}
	}
}

// mains are the files that may end the process.
var mains = []string{"cmd/carillon/main.go", "broker/brokertest/sim/main.go"}

func TestExits_areInMainOnly(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || slices.Contains(mains, s.path) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, _ := sel.X.(*ast.Ident)
			if x != nil && (x.Name == "os" && sel.Sel.Name == "Exit" || x.Name == "log" && strings.HasPrefix(sel.Sel.Name, "Fatal")) {
				t.Errorf("%s calls %s.%s: return an error", s.path, x.Name, sel.Sel.Name)
			}
			return true
		})
	}
}

func TestTests_doNotSleepInRealTime(t *testing.T) {
	for _, s := range sources(t) {
		if !s.test || slices.Contains(s.imports(), "testing/synctest") {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" && sel.Sel.Name == "Sleep" {
				t.Errorf("%s sleeps outside a bubble: wait for a condition", s.path)
			}
			return true
		})
	}
}

func TestTopLevel_holdsWhatTheHouseHolds(t *testing.T) {
	folders := []string{"cmd", "broker", "wheel", "raftfsm", "storage", "client", "configs", "docs", ".ci", ".git", ".github"}
	entries, err := os.ReadDir("../../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() && !slices.Contains(folders, e.Name()) && e.Name() != "carillon-dev" {
			t.Errorf("folder %s is not part of the house", e.Name())
		}
	}
}
