package member

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/carillonmq/carillon/storage"
)

// A program from before there were levels answers without the field, and reads an
// answer that has it.
func TestStanding_withoutTheFieldIsOfTheOldestLevel(t *testing.T) {
	var old Standing
	if err := json.Unmarshal([]byte(`{"node_id": "n1", "empty": true}`), &old); err != nil || old.Level() != storage.LevelOne {
		t.Errorf("level %d, error %v", old.Level(), err)
	}
	b, err := json.Marshal(Standing{NodeID: "n1", Understands: storage.LevelTwo})
	if err != nil || !strings.Contains(string(b), `"understands":2`) {
		t.Errorf("standing %s, error %v", b, err)
	}
}
