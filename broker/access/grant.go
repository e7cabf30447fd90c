package access

import (
	"path"
	"slices"
)

// A Permission is something that can be allowed.
type Permission string

const (
	// View is to see status, metrics, and messages without their payloads.
	View Permission = "view"
	// ReadPayload is to see keys, values and headers of messages. No role has it: it is
	// given apart.
	ReadPayload Permission = "read-payload"
	// Operate is to change messages and what is delivered when.
	Operate Permission = "operate"
	// Administer is to change the cluster.
	Administer Permission = "administer"
)

// A Role is a set of permissions.
type Role string

// The roles; each holds what the one before it does.
const (
	Viewer   Role = "viewer"
	Operator Role = "operator"
	Admin    Role = "admin"
)

var roles = map[Role][]Permission{
	Viewer:   {View},
	Operator: {View, Operate},
	Admin:    {View, Operate, Administer},
}

// A Grant is what one token allows.
type Grant struct {
	ID          string // of the token
	Name        string // who has it
	Role        Role
	ReadPayload bool
	Topics      []string // patterns of delay topics, as of routes; none: all
	Targets     []string // patterns of targets, likewise
}

// Everything returns a grant of all there is to somebody without a token.
func Everything(name string) Grant { return Grant{Name: name, Role: Admin, ReadPayload: true} }

// An Object is what something is to be done to: messages of a delay topic for a target.
// An empty field stands for all topics or all targets.
type Object struct{ Topic, Target string }

// Holds reports whether the grant has the permission for anything at all.
func (g Grant) Holds(p Permission) bool {
	if p == ReadPayload {
		return g.ReadPayload
	}
	return slices.Contains(roles[g.Role], p)
}

// Allows reports whether the grant has the permission for the object, as a whole: what is
// done to all topics is allowed to who may do it to every single one.
func (g Grant) Allows(p Permission, o Object) bool {
	return g.Holds(p) && covers(g.Topics, o.Topic) && covers(g.Targets, o.Target)
}

// IsFor reports whether the grant is for the delay topic, for whatever target.
func (g Grant) IsFor(topic string) bool { return covers(g.Topics, topic) }

// Narrowed reports whether there are topics or targets that the grant is not for.
func (g Grant) Narrowed() bool { return !covers(g.Topics, "") || !covers(g.Targets, "") }

func covers(patterns []string, name string) bool {
	if len(patterns) == 0 || slices.Contains(patterns, "*") {
		return true
	}
	return name != "" && slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil // a bad one, which no file brings in, matches nothing
	})
}
