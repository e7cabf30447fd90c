package access

import "errors"

var (
	// ErrMalformed: what was shown is no token of Carillon, or was not copied whole.
	ErrMalformed = errors.New("this is no token of the form carillon_ID_SECRET_CHECK")
	// ErrUnknown: the token was revoked, or is one of another cluster.
	ErrUnknown = errors.New("the token is not known here")
)
