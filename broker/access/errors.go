package access

import "errors"

var (
	// ErrMalformed: what was shown is no token of Carillon, or was not copied whole.
	ErrMalformed = errors.New("this is no token of the form carillon_ID_SECRET_CHECK")
	// ErrNoToken: the file has none of the id that is to be revoked.
	ErrNoToken = errors.New("has no token of the id")
	// ErrUnknown: the token was revoked, or is one of another cluster.
	ErrUnknown = errors.New("the token is not known to this node, or not any more")
)

// What is wrong with a token that an issuer has signed (package issuer).
var (
	// ErrUnreadable: it has the form of a JWT, and is none, or was not copied whole.
	ErrUnreadable = errors.New("this is no signed JWT of one signature")
	// ErrAlgorithm: it is signed in a way that whoever checks it could do as well, or not at all.
	ErrAlgorithm = errors.New("the token is not signed with RS, PS, ES (256, 384 or 512) or EdDSA")
	// ErrSignature: the key that it names has not signed it as it is.
	ErrSignature = errors.New("the signature of the token is not right")
	// ErrKeyUnknown: the issuer does not publish the key that signed it, or did not when it was asked last.
	ErrKeyUnknown = errors.New("the key that signed the token was not among those of the issuer when it was asked last")
	// ErrExpired: it was good once.
	ErrExpired = errors.New("the token has expired")
	// ErrNotYet: it will be good.
	ErrNotYet = errors.New("the token is not valid yet")
	// ErrIssuer: it is another issuer's.
	ErrIssuer = errors.New("the token is of another issuer")
	// ErrAudience: it was issued for something else than this cluster.
	ErrAudience = errors.New("the token is for another audience")
	// ErrNameless: nothing in it says who has it.
	ErrNameless = errors.New("the token does not say who has it")
	// ErrNoRole: who has it may do nothing here.
	ErrNoRole = errors.New("no role is given to who has the token")
	// ErrIssuerAway: the issuer has not been heard of since the node started, so that nothing can be
	// said of the token.
	ErrIssuerAway = errors.New("the issuer has not told its keys yet")
)
