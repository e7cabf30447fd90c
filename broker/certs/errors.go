package certs

import "errors"

var (
	// ErrNoCertificate: the other side shows no certificate.
	ErrNoCertificate = errors.New("the other side shows no certificate: give it one that the CA has signed")
	// ErrNoMember: its certificate is for somebody else, though the CA has signed it.
	ErrNoMember = errors.New("the certificate of the other side is not of this member of cluster.members: it must be issued to the member's id or host")
)
