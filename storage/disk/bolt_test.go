package disk

import (
	"errors"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
)

func TestGuard_saysWhereAPanicCameFrom(t *testing.T) {
	err := Guard(func() error { return panicsOnDamage() })
	if !errors.Is(err, codec.ErrCorrupt) || !strings.Contains(err.Error(), "panicsOnDamage") {
		t.Fatalf("guard returned %v", err)
	}
}

func panicsOnDamage() error { panic("page 7 has no type") }
