package api

import (
	"net/http"
)

// A problem is the body of an answer that refuses, as RFC 9457 has it:
//
//	Content-Type: application/problem+json
//	{"title": "Unauthorized", "status": 401, "code": "token-missing", "detail": "..."}
//
// Programs go by the code, which does not change; people read the detail.
type problem struct {
	Title  string `json:"title"` // of the status
	Status int    `json:"status"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
	// Error is the detail once more, where programs from before there were problems look.
	Error string `json:"error"`
}

// complain answers with the problem; its title and its Error need not be set.
func (a answers) complain(w http.ResponseWriter, p problem) {
	p.Title, p.Error = http.StatusText(p.Status), p.Detail
	a.write(w, p.Status, "application/problem+json", p)
}
