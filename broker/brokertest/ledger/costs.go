package ledger

import "time"

// Costs are what the cluster has spent in all. Time that is virtual shows none of it.
type Costs struct {
	Dials      int64 // connections to Kafka that were tried
	Lookups    int64 // requests that ask about topics and offsets
	Produces   int64 // requests that write
	Scanned    int64 // messages that were looked at in storage to find what is due
	Claims     int64 // commands that claim
	ClaimBytes int64 // what they take in the log
	Goroutines int64 // at the end, when all is quiet
	Files      int64 // of the nodes, open at that time
	Nodes      int64
}

// checkCosts holds what was spent against what it was for. The budgets are some times what runs
// need, and grow with the messages, the faults, the targets and the time: what they find is work that
// repeats itself without end, or grows with a product of these.
func (j *judge) checkCosts() {
	seconds := int64(j.End.Sub(j.Begin) / time.Second)
	upheavals := int64(len(j.Terms) + len(j.Faults))
	targets := make(map[string]bool)
	for _, r := range j.Records {
		targets[r.Target] = true
	}
	messages, copies, names := int64(len(j.Records)), int64(len(j.Deliveries)), int64(len(targets))
	// A target that is bad is tried each few seconds; what waits for all of them is read together.
	each, together := j.unwell()
	unwell, rounds := int64(each/time.Second), int64(together/time.Second)/10
	for _, c := range []struct {
		what          string
		spent, budget int64
	}{
		{"connections to Kafka", j.Costs.Dials, 100 + 20*upheavals + unwell/2},
		{"requests for topics and offsets", j.Costs.Lookups, 200 + 60*upheavals + 4*seconds + 2*unwell},
		{"requests that write", j.Costs.Produces, 100 + copies + 20*upheavals + unwell/2},
		{"messages looked at in storage", j.Costs.Scanned, 2000 + 6*messages + messages*upheavals/4 + 50*upheavals + messages*rounds},
		{"claims", j.Costs.Claims, 200 + 2*copies + 20*upheavals + unwell},
		{"bytes of claims", j.Costs.ClaimBytes, 60*j.Costs.Claims + 500*names*(1+upheavals) + 100*unwell},
		{"goroutines", j.Costs.Goroutines, 100 + 80*j.Costs.Nodes + 2*names},
		{"open files", j.Costs.Files, 150 * j.Costs.Nodes},
	} {
		if c.spent > c.budget {
			j.problem("bounds", "%d %s for %d messages, %d copies, %d targets, %d faults and terms in %d s: %d at most",
				c.spent, c.what, messages, copies, names, upheavals, seconds, c.budget)
		}
	}
}

// unwell returns for how long targets were bad: each counted by itself, and any of them.
func (j *judge) unwell() (each, together time.Duration) {
	var spans []span
	for _, f := range j.Faults {
		if f.Topic == "" {
			continue
		}
		to := j.recovered(f)
		if to.IsZero() || to.After(j.End) {
			to = j.End
		}
		if to.After(f.From) {
			each += to.Sub(f.From)
			spans = append(spans, span{f.From, to})
		}
	}
	for _, s := range merged(spans) {
		together += s.to.Sub(s.from)
	}
	return each, together
}
