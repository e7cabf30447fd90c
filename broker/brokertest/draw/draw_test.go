package draw

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

func TestScript_isTheSameForTheSameSeed(t *testing.T) {
	for seed := range uint64(200) {
		for _, profile := range []Profile{Any, TrueScale, Stretched, Long} {
			if first, again := Script(seed, profile), Script(seed, profile); first != again {
				t.Fatalf("seed %d gives two scripts", seed)
			}
		}
	}
	if Script(1, Any) == Script(2, Any) {
		t.Error("two seeds give one script")
	}
}

// What users do with ids is beside whatever else happens, whatever the seed.
func TestScript_hasUsersOfIDsInAllSeeds(t *testing.T) {
	for seed := range uint64(300) {
		for _, profile := range []Profile{Any, TrueScale, Stretched, Long} {
			text := Script(seed, profile)
			for _, word := range []string{" deliver-id=", " deliver-cancel=true", " change ", " deliver-expires-after=", " pause ", " resume "} {
				if !strings.Contains(text, word) {
					t.Fatalf("seed %d, profile %s, has no%sin it:\n%s", seed, profile, word, text)
				}
			}
		}
	}
}

// What is never drawn finds nothing.
func TestScript_drawsEverythingWithinAThousandSeeds(t *testing.T) {
	missing := map[string]bool{}
	for _, word := range slices.Concat(strings.Fields(`
		nodes heartbeat flush segment brokers loaded handed flying page feed merge proposal sync answer missing_target_timeout program
		create delete partitions recreate trim keep ApiVersions DescribeConfigs forbid allow slow hush well error stale metadata offsets
		produce abort transactional count about spread scatter bytes key value targets
		deliver-at deliver-after deliver-to deliver-partition deliver-key
		start stop kill freeze thaw replace raise config route cut silence oneway isolate heal
		pause resume change now exactly
		disk torn full clock step drift all leader follower here n1 n2 n3 n4 n5`), Events()) {
		missing[word] = true
	}
	for seed := uint64(0); seed < 1000 && len(missing) > 0; seed++ {
		for _, word := range strings.Fields(newRun(seed, Any).text()) {
			name, _, _ := strings.Cut(word, "=")
			delete(missing, name)
		}
	}
	if len(missing) > 0 {
		t.Errorf("never drawn: %v", slices.Sorted(maps.Keys(missing)))
	}
}
