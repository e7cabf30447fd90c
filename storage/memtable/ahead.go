package memtable

import "github.com/carillonmq/carillon/storage/segment"

// readAhead is how many entries are fetched together.
const readAhead = 64

// Each calls visit for each entry in order until it returns an error, which is returned. The entry is good until visit
// returns. It fetches some entries at a time: they lie scattered, and one after the other each would have to be waited for.
func (m *Table) Each(visit func(*segment.Entry) error) error {
	r := reader{table: m}
	return r.each(visit)
}

type reader struct {
	table   *Table
	refs    [readAhead]segment.Ref
	entries [readAhead]segment.Entry
	fetched byte // says nothing, but has the fetching done
}

func (r *reader) each(visit func(*segment.Entry) error) (err error) {
	n := 0
	r.table.order.Ascend(r.table.min(), func(ref segment.Ref) bool {
		r.refs[n] = ref
		if n++; n == readAhead {
			err, n = r.visit(n, visit), 0
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	return r.visit(n, visit)
}

func (r *reader) visit(n int, visit func(*segment.Entry) error) error {
	for i := range n {
		r.entries[i], _ = r.table.Get(r.refs[i].Seq)
	}
	for i := range n {
		e := &r.entries[i]
		if len(e.Body) > 0 {
			r.fetched ^= e.Body[0]
		}
		if len(e.ID) > 0 {
			r.fetched ^= e.ID[0]
		}
	}
	for i := range n {
		if err := visit(&r.entries[i]); err != nil {
			return err
		}
	}
	return nil
}
