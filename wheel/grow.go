package wheel

// grow adds a page to those there are, and for every 64 of them one more, up to
// 16 in all. They are allocated as one: for the garbage collector, which has
// nothing to scan in them, each object is still a step of its sweep.
func grow[P any](pages []*P, most int) []*P {
	block := make([]P, min(1+len(pages)/64, 16, most-len(pages)))
	for i := range block {
		pages = append(pages, &block[i])
	}
	return pages
}
