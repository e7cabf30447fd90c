package query

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/carillonmq/carillon/client"
	"github.com/carillonmq/carillon/storage"
)

const (
	// MostBounds is how many bounds a histogram may have.
	MostBounds = client.MostBounds
	// mostGroups is how many groups are told, those of the most messages.
	mostGroups = 1000
)

// A HistogramRequest asks how many messages are due when, and for whom.
type HistogramRequest struct {
	Filter client.Filter
	// Bounds part the time, epoch milliseconds, rising. What is due before the first or from the
	// last on has a bucket of its own; none: there is one bucket.
	Bounds   []int64
	ByTarget bool // each target apart
}

// untold is the bucket of messages of which only the bodies tell whether they are meant.
const untold = -1

// Histogram counts what is pending without reading all of it, however much that is.
func (d *Desk) Histogram(ctx context.Context, r HistogramRequest) (client.Histogram, error) {
	m, err := newMatcher(r.Filter)
	if err != nil {
		return client.Histogram{}, err
	}
	switch {
	case m.byBody():
		return client.Histogram{}, client.BadField("prefix", r.Filter.Prefix, "is of ids that nobody chose, which are not counted by what they begin with: list them")
	case len(r.Bounds) > MostBounds:
		return client.Histogram{}, client.BadField("bounds", strconv.Itoa(len(r.Bounds)), fmt.Sprintf("are more than %d: give so many at most", MostBounds))
	case !slices.IsSorted(r.Bounds):
		return client.Histogram{}, client.BadField("bounds", strings.Trim(fmt.Sprint(r.Bounds), "[]"), "do not rise: put them in order")
	}
	if err := d.enter(ctx); err != nil {
		return client.Histogram{}, err
	}
	defer d.leave()
	m.tellAside(d.aside())
	t, err := d.store.Tally(ctx, storage.TallyQuery{From: m.first(), Last: m.last(), Sort: func(at *storage.Moment, e *storage.Entry) (g storage.Group, counted bool) {
		if !m.may(at, e) { // a prefix without a slash means all of a topic's messages without an id, or none
			return g, false
		}
		if e.Topic == "" && (m.Topic != "" || m.Prefix != "") {
			return storage.Group{Bucket: untold}, true
		}
		g.Bucket = sort.Search(len(r.Bounds), func(i int) bool { return r.Bounds[i] > e.Due })
		if r.ByTarget {
			g.Target = e.Target
		}
		return g, true
	}})
	if err != nil {
		return client.Histogram{}, err
	}
	return histogramOf(t, r.Bounds), nil
}

// Places returns how many messages are pending by delay topic, or else by target, in order of their names.
func (d *Desk) Places(ctx context.Context, byTopic bool) (client.Places, error) {
	if err := d.enter(ctx); err != nil {
		return client.Places{}, err
	}
	defer d.leave()
	t, err := d.store.Tally(ctx, storage.TallyQuery{From: storage.Ref{Due: math.MinInt64}, Last: math.MaxInt64, Sort: func(_ *storage.Moment, e *storage.Entry) (storage.Group, bool) {
		switch {
		case !byTopic:
			return storage.Group{Target: e.Target}, true
		case e.Topic == "": // from before feature level 3
			return storage.Group{Bucket: untold}, true
		}
		return storage.Group{Target: e.Topic}, true
	}})
	if err != nil {
		return client.Places{}, err
	}
	var unclear uint64 // any of them may be anywhere
	for g, f := range t.Groups {
		if g.Bucket == untold {
			unclear += f.Count + f.Within
		}
	}
	places := client.Places{Index: t.Moment.Index, Places: []client.Place{}}
	for g, f := range t.Groups {
		if g.Bucket != untold {
			places.Places = append(places.Places, client.Place{Name: g.Target, Pending: f.Count, Within: f.Within + unclear})
		}
	}
	slices.SortFunc(places.Places, func(a, b client.Place) int { return strings.Compare(a.Name, b.Name) })
	return places, nil
}

// Count returns how many messages the filter means, as a Histogram of one bucket does.
func (d *Desk) Count(ctx context.Context, f client.Filter) (client.Count, error) {
	h, err := d.Histogram(ctx, HistogramRequest{Filter: f})
	if err != nil {
		return client.Count{}, err
	}
	c := client.Count{Index: h.Index, Exact: h.Exact, Within: h.Unseen}
	for _, b := range h.Buckets {
		c.Count, c.Within = c.Count+b.Count, max(c.Within, b.Within)
	}
	if h.Untold != nil { // any of them may be meant
		c.Exact, c.Within = false, c.Within+h.Untold.Count+h.Untold.Within
	}
	return c, nil
}

func histogramOf(t storage.Tally, bounds []int64) client.Histogram {
	h := client.Histogram{Index: t.Moment.Index, Pending: t.Moment.Pending, Exact: t.Exact, Buckets: []client.Bucket{}, Unseen: t.Unseen}
	var groups []storage.Group
	for g, f := range t.Groups {
		if g.Bucket == untold {
			h.Untold = &client.Bucket{Count: f.Count, Within: f.Within}
		} else {
			groups = append(groups, g)
		}
	}
	if len(groups) > mostGroups {
		slices.SortFunc(groups, func(a, b storage.Group) int {
			return cmp.Or(cmp.Compare(t.Groups[b].Count, t.Groups[a].Count), inOrder(a, b))
		})
		h.LeftOut, groups = len(groups)-mostGroups, groups[:mostGroups]
	}
	slices.SortFunc(groups, inOrder)
	for _, g := range groups {
		b := client.Bucket{Target: g.Target, Count: t.Groups[g].Count, Within: t.Groups[g].Within}
		if g.Bucket > 0 {
			b.From = &bounds[g.Bucket-1]
		}
		if g.Bucket < len(bounds) {
			b.To = &bounds[g.Bucket]
		}
		h.Buckets = append(h.Buckets, b)
	}
	return h
}

func inOrder(a, b storage.Group) int {
	return cmp.Or(cmp.Compare(a.Bucket, b.Bucket), strings.Compare(a.Target, b.Target))
}
