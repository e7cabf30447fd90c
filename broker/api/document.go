package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/carillonmq/carillon/broker"
	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/client/body"
	"github.com/carillonmq/carillon/client/head"
)

// What users ask is told by a document of OpenAPI 3.1, which huma makes of the types that handlers take
// and return. The routes, and who may use them, stay in the table of routes.go: huma gets its part of it.

// An account is what the document tells of a route.
type account struct {
	id, summary string
	problems    []int // statuses that it may refuse with, beside those of every route
	mostBody    int64 // bytes; 0: mostRequested
	begins      bool  // what is asked for goes on behind the answer
	takesBody   bool
	answers     map[string][]reflect.Type // by media type, any of them; nil: what the handler returns
	register    func(huma.API, huma.Operation)
}

// tells returns the account of a route that answers so.
func tells[I, O any](id, summary string, answer func(context.Context, *I) (*O, error), problems ...int) *account {
	_, takesBody := reflect.TypeFor[I]().FieldByName("Body") // as huma finds it
	return &account{id: id, summary: summary, problems: problems, takesBody: takesBody, register: func(api huma.API, op huma.Operation) {
		huma.Register(api, op, answer)
	}}
}

// upTo takes bodies of that many bytes.
func (a *account) upTo(most int64) *account {
	a.mostBody = most
	return a
}

// accepts answers with 202: what is asked for goes on behind the answer.
func (a *account) accepts() *account {
	a.begins = true
	return a
}

// as answers with any of the values' types, by that media type.
func (a *account) as(kind string, values ...any) *account {
	if a.answers == nil {
		a.answers = make(map[string][]reflect.Type)
	}
	for _, v := range values {
		a.answers[kind] = append(a.answers[kind], reflect.TypeOf(v))
	}
	return a
}

// Statuses of problems.
var (
	// asLeader are those of what the leader alone can do.
	asLeader = []int{http.StatusServiceUnavailable, http.StatusGatewayTimeout}
	// ofAny are those of every route that needs a permission.
	ofAny = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}
	// ofBodies are those of routes that take one.
	ofBodies = []int{http.StatusRequestTimeout, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType}
)

const (
	specPath     = "/v1/openapi.json"
	schemaPrefix = "#/components/schemas/"
	problemType  = "application/problem+json"
	bearerScheme = "token"
)

// An entrance is the mux as huma sees it: what it hangs in is guarded as the rest.
type entrance struct {
	*http.ServeMux
	handler *handler
	routes  map[string]route // by pattern
}

// HandleFunc hangs in what serves the pattern.
func (e entrance) HandleFunc(pattern string, serve func(http.ResponseWriter, *http.Request)) {
	e.ServeMux.HandleFunc(pattern, e.handler.enter(e.routes[pattern], serve))
}

// newDocument returns the API as huma has it, without routes.
func newDocument(mux humago.Mux) huma.API {
	format := huma.Format{Marshal: huma.DefaultJSONFormat.Marshal, Unmarshal: unmarshal}
	api := humago.New(mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: "Carillon", Version: "1", Description: description},
			Servers: []*huma.Server{{URL: "..", Description: "relative to this document: it works below any path"}},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry(schemaPrefix, schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{bearerScheme: {Type: "http", Scheme: "bearer", Description: "of `carillon token create`, or of the issuer that the nodes trust"}},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json",
		Transformers:  []huma.Transformer{ownProblem},
	})
	api.UseMiddleware(checkContentType, checkConditions, func(ctx huma.Context, next func(huma.Context)) { next(plainStatus{ctx}) })
	return api
}

// schemaName is what a type is called: package broker has types of the same names as package client.
func schemaName(t reflect.Type, hint string) string {
	name := huma.DefaultSchemaNamer(t, hint)
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.PkgPath() == reflect.TypeFor[broker.Status]().PkgPath() {
		return "Node" + name
	}
	return name
}

const description = `Messages that wait, as programs and people change and see them. Any node answers: what the leader alone can do is passed on to it.
64-bit numbers are texts, but for /v1/status, and for the since of a pause, which are numbers. Times in answers are epoch milliseconds. Errors are problem details (RFC 9457) whose code does not change.`

// operation returns the route as huma takes it.
func (r route) operation(registry huma.Registry) huma.Operation {
	method, path, _ := strings.Cut(r.pattern, " ")
	op := huma.Operation{
		OperationID: r.account.id, Method: method, Path: path, Summary: r.account.summary,
		MaxBodyBytes: -1, BodyReadTimeout: -1, // it is in memory
		SkipValidateBody: true, // reading it strictly, and the desks, say more

		RejectUnknownQueryParameters: true,
		Responses:                    map[string]*huma.Response{},
	}
	if r.account.begins {
		op.DefaultStatus = http.StatusAccepted
	}
	problems := slices.Concat(r.account.problems, ofAny)
	if r.leader {
		problems = append(problems, asLeader...)
	}
	if method != http.MethodGet && method != http.MethodDelete {
		problems = append(problems, ofBodies...)
	}
	if r.need != (need{}) {
		op.Security = []map[string][]string{{bearerScheme: {}}}
		op.Description = fmt.Sprintf("Needs the permission `%s`.", r.need.permission)
	}
	if a := r.account.answers; a != nil {
		answer := &huma.Response{Description: http.StatusText(http.StatusOK), Content: map[string]*huma.MediaType{}}
		for kind, types := range a {
			any := &huma.Schema{}
			for _, t := range types {
				any.OneOf = append(any.OneOf, registry.Schema(t, true, ""))
			}
			answer.Content[kind] = &huma.MediaType{Schema: any}
		}
		op.Responses[strconv.Itoa(http.StatusOK)] = answer
	}
	schema := registry.Schema(reflect.TypeFor[client.Problem](), true, "")
	for _, status := range problems {
		op.Responses[strconv.Itoa(status)] = &huma.Response{
			Description: http.StatusText(status), Content: map[string]*huma.MediaType{problemType: {Schema: schema}},
		}
	}
	return op
}

// spec returns the document, when all routes are in it.
func spec(api huma.API) []byte {
	registry := api.OpenAPI().Components.Schemas
	schemas := registry.Map()
	delete(schemas, "ErrorModel") // huma's own form of a problem, and
	delete(schemas, "ErrorDetail")
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		tellTexts(schemas[name], registry.TypeFromRef(schemaPrefix+name))
	}
	schemas["Problem"].Properties["error"] = &huma.Schema{Type: huma.TypeString, Deprecated: true, Description: "the detail once more"}
	if data := schemas["Data"]; data != nil {
		data.Nullable, data.MinProperties, data.MaxProperties = true, new(1), new(1)
	}
	var text bytes.Buffer
	out := json.NewEncoder(&text)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	if err := out.Encode(api.OpenAPI()); err != nil { // it is made of texts and numbers
		panic(fmt.Errorf("write the OpenAPI document: %w", err))
	}
	return text.Bytes()
}

// tellTexts corrects the schema of a type whose numbers are written as texts, which huma does not see.
func tellTexts(s *huma.Schema, t reflect.Type) {
	for i := range t.NumField() {
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if property := s.Properties[name]; property != nil && strings.Contains(options, "string") {
			property.Type, property.Format, property.Minimum, property.Pattern = huma.TypeString, "", nil, "^-?[0-9]+$"
		}
	}
}

// A bodyFault is what is wrong with a body as huma carries it to ownProblem: huma keeps nothing of an error
// but its words, so these are the Fault itself, in JSON.
type bodyFault struct{ *body.Fault }

// Error returns the Fault in JSON.
func (f bodyFault) Error() string {
	text, err := json.Marshal(f.Fault)
	if err != nil { // texts
		panic(err)
	}
	return string(text)
}

// unmarshal reads a body, and nothing beside it.
func unmarshal(text []byte, into any) error {
	if wrong, ok := errors.AsType[*body.Fault](body.Read(text, into)); ok {
		return bodyFault{wrong}
	}
	return nil
}

// checkContentType refuses bodies of another kind.
func checkContentType(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	if wrong := head.CheckKind(r.Header); wrong != nil && ctx.Operation().RequestBody != nil {
		writeProblem(w, &refuses(*wrong).told)
		return
	}
	next(ctx)
}

// checkConditions refuses a header that says what a request depends on, or that it is to take effect once, where
// the route has no use for it.
func checkConditions(ctx huma.Context, next func(huma.Context)) {
	op := ctx.Operation()
	r, w := humago.Unwrap(ctx)
	unused := head.Unused(r, func(name string) bool {
		return slices.ContainsFunc(op.Parameters, func(p *huma.Param) bool { return p.In == "header" && p.Name == name })
	})
	if unused != nil {
		writeProblem(w, &refuses(*unused).told)
		return
	}
	next(ctx)
}

// plainStatus answers with 400 what huma answers with 422: there is one status for what means nothing.
type plainStatus struct{ inner }

type inner = huma.Context // embedded by a name that is none of its methods

// SetStatus writes the status.
func (c plainStatus) SetStatus(status int) { c.inner.SetStatus(plain(status)) }

// Unwrap is for humago.
func (c plainStatus) Unwrap() huma.Context { return c.inner }

func plain(status int) int {
	if status == http.StatusUnprocessableEntity {
		return http.StatusBadRequest
	}
	return status
}

// ownProblem puts a problem into the place of what huma says of a request. It is of the first thing that is
// wrong: what a second one means depends on it.
func ownProblem(ctx huma.Context, _ string, v any) (any, error) {
	model, ok := v.(*huma.ErrorModel)
	if !ok {
		return v, nil
	}
	p := problemOfStatus(plain(model.Status), model.Detail)
	if len(model.Errors) == 0 { // of a body: missing, too long, or too slow
		p.Field = body.Whole
	} else {
		p.Field, p.Value, p.Detail = faultOf(model.Errors[0])
		if p.Value == "" {
			p.Value = cut(ctx.Query(p.Field)) // of a parameter that there is not huma tells the name alone
		}
	}
	p.Error = p.Detail
	return p, nil
}

// faultOf says what is wrong, and where.
func faultOf(detail *huma.ErrorDetail) (field, value, words string) {
	place, field, _ := strings.Cut(detail.Location, ".")
	field, _, _ = strings.Cut(field, "[") // of a list
	var wrong body.Fault
	if place == "body" && json.Unmarshal([]byte(detail.Message), &wrong) == nil {
		return wrong.Field, wrong.Value, wrong.Words
	}
	if detail.Value != nil {
		value = cut(fmt.Sprint(detail.Value))
	}
	switch detail.Message {
	case "unknown query parameter":
		return field, value, fmt.Sprintf("%q is no parameter of this: leave it out, or correct its name", field)
	case "invalid integer":
		remedy := "it is a whole number of 64 bits at most"
		switch {
		case place == "path":
			remedy = "write the number as an answer tells it"
		case field == "from" || field == "to":
			remedy = "it is a number of epoch milliseconds"
		}
		return field, value, fmt.Sprintf("%s is %q: %s", field, value, remedy)
	}
	return field, value, fmt.Sprintf("%s is %q: %s", field, value, detail.Message)
}

// cut returns what is repeated of a value, which may be long.
func cut(value string) string {
	const most = 64 // bytes
	if len(value) > most {
		return strings.ToValidUTF8(value[:most], "") + "..."
	}
	return value
}

// specServed answers GET /v1/openapi.json.
func (h *handler) specServed(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/openapi+json")
	w.Header().Set("Cache-Control", "max-age="+strconv.Itoa(int(time.Minute/time.Second)))
	if _, err := w.Write(h.spec); err != nil {
		h.log.Debug("answer not sent", "error", err)
	}
}
