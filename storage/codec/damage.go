package codec

import "fmt"

// A Damage is an error that says where in which file it was found. What it wraps tells
// what was expected there.
type Damage struct {
	File   string
	Offset int64 // in bytes; negative when it is the file as a whole
	Err    error
}

// DamageAt returns a Damage that wraps ErrCorrupt.
func DamageAt(file string, offset int64, format string, args ...any) error {
	return &Damage{File: file, Offset: offset, Err: fmt.Errorf("%w: %w", ErrCorrupt, fmt.Errorf(format, args...))}
}

func (d *Damage) Error() string {
	if d.Offset < 0 {
		return fmt.Sprintf("%s: %v", d.File, d.Err)
	}
	return fmt.Sprintf("%s, byte %d: %v", d.File, d.Offset, d.Err)
}

func (d *Damage) Unwrap() error { return d.Err }
