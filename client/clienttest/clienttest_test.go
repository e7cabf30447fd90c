package clienttest

import (
	"testing"

	"github.com/carillonmq/carillon/client/clienttest/conformance"
)

// Its Server is a world as it is.
var _ conformance.World = (*Server)(nil)

func TestServer_conforms(t *testing.T) {
	all := New(t)
	for _, c := range conformance.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			c.Run(t, New(t))
			c.Run(t, all) // beside what others have left
		})
	}
}
