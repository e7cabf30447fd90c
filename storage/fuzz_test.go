package storage

import (
	"errors"
	"reflect"
	"testing"

	"github.com/carillonmq/carillon/storage/codec"
)

// Records of any content must decode to what encodes to the same bytes, or fail.
func FuzzRecords(f *testing.F) {
	f.Fuzz(func(t *testing.T, payload []byte) {
		for version := byte(1); version <= newestState; version++ {
			v, err := decodeValues(codec.Record{Version: version, Payload: payload})
			if err != nil {
				continue
			}
			if again, err := decodeValues(encodeValues(&v)); err != nil || !reflect.DeepEqual(encodeValues(&again), encodeValues(&v)) {
				t.Fatalf("values %+v do not survive", v)
			}
		}
		for version := byte(1); version <= newestStreamHeader; version++ {
			_, err := decodeStreamHeader(codec.Seal(codec.Record{Version: version, Payload: payload}))
			if err != nil && !errors.Is(err, ErrCorrupt) && (version == 1 || !errors.Is(err, ErrVersion)) {
				t.Fatalf("version %d: error is %v", version, err)
			}
		}
	})
}
