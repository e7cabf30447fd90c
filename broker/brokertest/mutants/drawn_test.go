package mutants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const toDrawFrom = `package a

type keeper struct{ log logger; kept []int }

type logger struct{}

func (logger) Info(string) {}

func (k *keeper) keep(n, most int) int {
	k.log.Info("keeping")
	for i := 0; i < most; i++ {
		if n > most {
			k.kept = append(k.kept, n)
			continue
		}
		_ = n
	}
	switch {
	case n == 3, n <= 1:
		k.clear()
	}
	return n
}

func (k *keeper) clear() { k.kept = nil }
`

func TestDraw_takesConditionsStatementsAndBounds(t *testing.T) {
	tree := module(t, map[string]string{
		"go.mod": "module m\n", "a/a.go": toDrawFrom, "a/a_test.go": "package a\nvar _ = 1 < 2\n",
		"a/internal/b.go": "package b\nvar _ = 1 < 2\n", "c/c.go": "package c\nvar _ = 1 < 2\n",
	})
	drawn, err := Draw(tree, []string{"a"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range drawn {
		got = append(got, string(d.Kind)+": "+d.From+" -> "+d.To)
	}
	slices.Sort(got)
	want := []string{
		"dropped statement: continue -> ",
		"dropped statement: k.clear() -> ",
		"dropped statement: k.kept = append(k.kept, n) -> ",
		"dropped statement: k.kept = nil -> ",
		"negated condition: i < most -> !(i < most)",
		"negated condition: n <= 1 -> !(n <= 1)",
		"negated condition: n == 3 -> !(n == 3)",
		"negated condition: n > most -> !(n > most)",
		"off by one: < -> <=",
		"off by one: <= -> <",
		"off by one: > -> >=",
	}
	if !slices.Equal(got, want) {
		t.Errorf("drawn\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, d := range drawn {
		if err := d.Apply(tree); err != nil {
			t.Fatal(err)
		}
		if problem := compile(string(read(t, tree, d.Path))); problem != nil {
			t.Errorf("%s: %v", d.Name(), problem)
		}
	}
}

func TestDraw_isTheSameForASeed(t *testing.T) {
	tree := module(t, map[string]string{"go.mod": "module m\n", "a/a.go": toDrawFrom, "b/b.go": toDrawFrom})
	draw := func(seed uint64) []Drawn {
		drawn, err := Draw(tree, []string{"a", "b"}, seed)
		if err != nil {
			t.Fatal(err)
		}
		return drawn
	}
	one := draw(1)
	if !reflect.DeepEqual(one, draw(1)) {
		t.Error("the same seed gives two orders")
	}
	if reflect.DeepEqual(one, draw(2)) {
		t.Error("two seeds give one order")
	}
	names := make(map[string]bool)
	packages, kinds := make(map[string]int), make(map[Kind]int)
	for i, d := range one {
		names[d.Name()] = true
		if i < 6 {
			packages[d.Package()]++
			kinds[d.Kind]++
		}
	}
	if len(names) != len(one) {
		t.Errorf("%d names for %d bugs", len(names), len(one))
	}
	if len(packages) != 2 || packages["a"] != 3 || len(kinds) != 3 || kinds[Dropped] != 2 {
		t.Errorf("the first six are from %v, of %v: want packages and kinds in turn", packages, kinds)
	}
}

func compile(text string) error {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "a.go", text, 0)
	if err != nil {
		return err
	}
	_, err = new(types.Config).Check("a", set, []*ast.File{file}, nil)
	return err
}
