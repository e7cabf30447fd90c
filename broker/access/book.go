package access

import (
	"bytes"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// A Book is the tokens that are known. It does not change; any goroutine may use it.
type Book struct{ entries []Entry }

// An Entry is what is kept of a token:
//
//	tokens:
//	  - id: 4fQz81Lm
//	    name: anna
//	    role: operator
//	    read_payload: true
//	    topics: [orders.delay]
//	    targets: ["*"]
//	    created: 2027-01-01T00:00:00Z
//	    sha256: 0f4c...
//
// read_payload, topics, targets and created can be left out: false, all, all, unknown.
type Entry struct {
	Grant
	Created time.Time
	Digest  Digest

	line int // of the file
}

// Entries returns the entries in the order of the file. The caller must not change them.
func (b Book) Entries() []Entry { return b.entries }

// Check returns what the token allows, or why it allows nothing: ErrMalformed or ErrUnknown.
func (b Book) Check(token string) (Grant, error) {
	id, digest, err := readToken(token)
	if err != nil {
		return Grant{}, err
	}
	i := slices.IndexFunc(b.entries, func(e Entry) bool { return e.ID == id }) // which is no secret
	if i < 0 || subtle.ConstantTimeCompare(b.entries[i].Digest[:], digest[:]) != 1 {
		return Grant{}, ErrUnknown
	}
	return b.entries[i].Grant, nil
}

// ReadBook reads the text of a token file, nil for one that is missing: nobody has a token then. One that is there and
// says nothing is refused: it may be half written, and everybody's token would be revoked. Every error names the path,
// the line and what to do, and shows no value that may be a secret in a wrong place.
func ReadBook(path string, text []byte) (Book, error) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	var documents [2]yaml.Node // the second to see that there is none: what it says of a token would not count
	for i := range documents {
		err := in.Decode(&documents[i])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Book{}, fmt.Errorf("%s: %w: correct it, or restore it", path, err)
		}
	}
	r := bookReader{path: path}
	if second := documents[1]; !second.IsZero() {
		r.wrong(second.Line, "the --- here begins a second document: put all tokens into the first")
	} else if first := documents[0]; len(first.Content) > 0 {
		r.book(first.Content[0])
	} else if text != nil {
		r.wrong(1, "nothing stands here, as in a file that is half written: restore it, or write tokens: [] where nobody is to have a token")
	}
	return r.read, errors.Join(r.problems...)
}

// A bookReader gathers what it reads, and all that is wrong with it.
type bookReader struct {
	path     string
	read     Book
	problems []error
}

func (r *bookReader) wrong(line int, remedy string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s:%d: %s", r.path, line, fmt.Sprintf(remedy, args...)))
}

func (r *bookReader) book(root *yaml.Node) {
	if root.Kind != yaml.MappingNode || len(root.Content) != 2 || root.Content[0].Value != "tokens" {
		r.wrong(root.Line, "this is no token file: it has one key, tokens, with a list below it")
		return
	}
	list := root.Content[1]
	if list.Kind != yaml.SequenceNode {
		if list.ShortTag() != "!!null" {
			r.wrong(list.Line, "tokens is no list: write one entry a token, each begun by a dash")
		}
		return
	}
	lines := map[string]int{} // of ids
	for _, node := range list.Content {
		if node.Kind != yaml.MappingNode {
			r.wrong(node.Line, "an entry is no set of keys: write id, name, role and sha256 below one dash")
			continue
		}
		e := r.entry(node)
		if first, twice := lines[e.ID]; twice {
			r.wrong(e.line, "id %s stands in line %d already: take one of the two out", e.ID, first)
		}
		lines[e.ID] = e.line
		r.read.entries = append(r.read.entries, e)
	}
}

var (
	idForm   = regexp.MustCompile(`^[0-9A-Za-z]{` + strconv.Itoa(idWidth) + `}$`)
	nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$`)
)

const nameRemedy = "use 1 to 63 letters, digits, dots, hyphens, underscores and @, a letter or digit first"

// keys are those of an entry.
var keys = []string{"id", "name", "role", "read_payload", "topics", "targets", "created", "sha256"}

func (r *bookReader) entry(node *yaml.Node) Entry {
	e := Entry{line: node.Line}
	given := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case !slices.Contains(keys, key.Value):
			r.wrong(key.Line, "unknown key of a token: use %s", strings.Join(keys, ", "))
			continue
		case given[key.Value]:
			r.wrong(key.Line, "%s stands here twice: take one out", key.Value)
			continue
		}
		given[key.Value] = true
		if key.Value == "topics" || key.Value == "targets" {
			r.patterns(key.Value, value, &e)
		} else if value.Kind != yaml.ScalarNode {
			r.wrong(value.Line, "%s is no single value: write one", key.Value)
		} else {
			r.value(key.Value, value, &e)
		}
	}
	if err := CheckSize(e.Grant); err != nil {
		r.wrong(node.Line, "%v", err)
	}
	for _, key := range []string{"id", "name", "role", "sha256"} {
		if !given[key] {
			r.wrong(node.Line, "a token has no %s: make it with `carillon token create`, or take it out", key)
		}
	}
	return e
}

func (r *bookReader) value(key string, node *yaml.Node, e *Entry) {
	text := node.Value
	switch key {
	case "id":
		if e.ID = text; !idForm.MatchString(text) {
			r.wrong(node.Line, "id is not %d letters and digits: make tokens with `carillon token create`", idWidth)
		}
	case "name":
		if e.Name = text; !nameForm.MatchString(text) {
			r.wrong(node.Line, "name is %q: %s", text, nameRemedy)
		}
	case "role":
		if e.Role = Role(text); roles[e.Role] == nil {
			r.wrong(node.Line, "role is %q: use viewer, operator or admin", text)
		}
	case "read_payload":
		if e.ReadPayload = text == "true"; text != "true" && text != "false" {
			r.wrong(node.Line, "read_payload is %q: write true or false", text)
		}
	case "created":
		var err error
		if e.Created, err = time.Parse(time.RFC3339, text); err != nil {
			r.wrong(node.Line, "created is %q: write a time as 2027-01-01T00:00:00Z, or take it out", text)
		}
	case "sha256":
		if n, err := hex.Decode(e.Digest[:], []byte(text[:min(len(text), hex.EncodedLen(len(e.Digest)))])); err != nil || n != len(e.Digest) || len(text) != hex.EncodedLen(n) {
			r.wrong(node.Line, "sha256 is not 64 hexadecimal digits: it is the digest of a token, which `carillon token create` writes, and never the token itself")
		}
	}
}

func (r *bookReader) patterns(key string, list *yaml.Node, e *Entry) {
	if list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		r.wrong(list.Line, `%s is no list of patterns: write ["*"], or leave it out, for all`, key)
		return
	}
	var patterns []string
	for _, node := range list.Content {
		if node.ShortTag() == "!!null" {
			r.wrong(node.Line, "%s: an item is null: write a pattern, or take the item out", key)
		} else if err := CheckPattern(node.Value); err != nil { // what is no single value has none
			r.wrong(node.Line, "%s: %q: %v", key, node.Value, err)
		}
		patterns = append(patterns, node.Value)
	}
	if key == "topics" {
		e.Topics = patterns
	} else {
		e.Targets = patterns
	}
}

// CheckPattern returns what is wrong with a pattern of topics, or nil.
func CheckPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return errors.New(`write a pattern over topic names, such as "*.delay"; * ? and [abc] have a meaning`)
	}
	if strings.ContainsFunc(pattern, unicode.IsSpace) {
		return errors.New("no topic has a blank in its name, so it matches none: take the blanks out")
	}
	return nil
}

// mostGrant bounds a grant, in bytes of JSON: a node that passes a request on says so in a header what the caller
// may, in base64, and a request has 16 KiB of headers.
const mostGrant = 6 << 10

// CheckSize returns an error if a grant is too large for nodes to tell each other.
func CheckSize(g Grant) error {
	text, err := json.Marshal(g)
	if err != nil { // texts
		panic(err)
	}
	if len(text) > mostGrant {
		return fmt.Errorf("topics and targets take %d bytes, %d at most: use fewer patterns, and wider ones", len(text), mostGrant)
	}
	return nil
}

// CheckName returns what is wrong with the name of who is to have a token, or nil.
func CheckName(name string) error {
	if !nameForm.MatchString(name) {
		return errors.New(nameRemedy)
	}
	return nil
}
