// Package access says who may do what: tokens, the file that holds their digests, roles,
// and the delay topics and targets that a role is narrowed to. It knows nothing of HTTP.
package access
