package mutants

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
)

// A Kind says what is done to a place of the source.
type Kind string

// The kinds of drawn bugs.
const (
	Negated  Kind = "negated condition"
	Dropped  Kind = "dropped statement"
	OffByOne Kind = "off by one"
)

// A Drawn is a bug that was drawn from the syntax of a file. Not each of them compiles: a statement
// that is dropped may have been the only one that used a variable.
type Drawn struct {
	Path string // of the file, in the module, with slashes
	Line int
	Kind Kind
	From string // what stood there
	To   string

	begin, end int // what To takes the place of, in bytes
}

// Name tells a drawn bug from all others of the same source.
func (d Drawn) Name() string {
	return fmt.Sprintf("%s:%d:%d %s", d.Path, d.Line, d.begin, d.Kind)
}

// Package is the folder of the file.
func (d Drawn) Package() string { return path.Dir(d.Path) }

// Apply puts the bug into the tree.
func (d Drawn) Apply(tree *Tree) error {
	text := tree.Text(d.Path)
	return tree.Write(d.Path, slices.Concat(text[:d.begin], []byte(d.To), text[d.end:]))
}

// Draw returns all bugs that can be drawn from the groups of packages, in an order that the seed
// gives. Groups take turns, and within a group kinds do, so the first hundred are spread over
// all. A group is a folder with all below it.
func Draw(tree *Tree, groups []string, seed uint64) ([]Drawn, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	var turns [][]Drawn // of each group
	for _, group := range groups {
		byKind := make(map[Kind][]Drawn)
		for _, path := range tree.Files() {
			if !strings.HasPrefix(path, group+"/") || !isProduct(path) {
				continue
			}
			found, err := candidates(path, tree.Text(path))
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", path, err)
			}
			for _, d := range found {
				byKind[d.Kind] = append(byKind[d.Kind], d)
			}
		}
		var lists [][]Drawn
		for _, kind := range []Kind{Negated, Dropped, OffByOne} {
			list := byKind[kind]
			random.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
			lists = append(lists, list)
		}
		turns = append(turns, inTurn(lists))
	}
	return inTurn(turns), nil
}

func isProduct(path string) bool {
	return strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "/internal/") && !strings.Contains(path, "/testdata/")
}

// inTurn returns the first of each list, then the second of each, and so on.
func inTurn(lists [][]Drawn) (all []Drawn) {
	for i := 0; ; i++ {
		n := len(all)
		for _, list := range lists {
			if i < len(list) {
				all = append(all, list[i])
			}
		}
		if len(all) == n {
			return all
		}
	}
}

// candidates returns the bugs that can be drawn from one file, in order.
func candidates(path string, text []byte) ([]Drawn, error) {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []Drawn
	add := func(kind Kind, begin, end token.Pos, to string) {
		at := set.Position(begin)
		last := set.Position(end).Offset
		found = append(found, Drawn{Path: path, Line: at.Line, Kind: kind, From: string(text[at.Offset:last]), To: to, begin: at.Offset, end: last})
	}
	negate := func(condition ast.Expr) {
		if condition != nil {
			from := text[set.Position(condition.Pos()).Offset:set.Position(condition.End()).Offset]
			add(Negated, condition.Pos(), condition.End(), "!("+string(from)+")")
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IfStmt:
			negate(n.Cond)
		case *ast.ForStmt:
			negate(n.Cond)
		case *ast.SwitchStmt:
			if n.Tag == nil {
				for _, clause := range n.Body.List {
					for _, condition := range clause.(*ast.CaseClause).List {
						negate(condition)
					}
				}
			}
		case *ast.BinaryExpr:
			if to, ok := offByOne(n.Op); ok {
				add(OffByOne, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to)
			}
		case *ast.BlockStmt:
			dropIn(n.List, add)
		case *ast.CaseClause:
			dropIn(n.Body, add)
		case *ast.CommClause:
			dropIn(n.Body, add)
		}
		return true
	})
	slices.SortStableFunc(found, func(a, b Drawn) int { return cmp.Compare(a.begin, b.begin) })
	return found, nil
}

func offByOne(op token.Token) (string, bool) {
	to, ok := map[token.Token]string{token.LSS: "<=", token.LEQ: "<", token.GTR: ">=", token.GEQ: ">"}[op]
	return to, ok
}

// dropIn adds the statements of a block that can be left out by themselves.
func dropIn(block []ast.Stmt, add func(kind Kind, begin, end token.Pos, to string)) {
	for _, statement := range block {
		switch s := statement.(type) {
		case *ast.ExprStmt:
			if !isLogging(s.X) {
				add(Dropped, s.Pos(), s.End(), "")
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && !isBlank(s.Lhs) {
				add(Dropped, s.Pos(), s.End(), "")
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.BranchStmt, *ast.DeferStmt:
			add(Dropped, s.Pos(), s.End(), "")
		}
	}
}

// isLogging reports whether the call writes to the log, which no promise is about.
func isLogging(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch on := method.X.(type) {
	case *ast.Ident:
		return on.Name == "log"
	case *ast.SelectorExpr:
		return on.Sel.Name == "log" || on.Sel.Name == "Logger"
	}
	return false
}

func isBlank(left []ast.Expr) bool {
	for _, x := range left {
		if name, ok := x.(*ast.Ident); !ok || name.Name != "_" {
			return false
		}
	}
	return true
}
