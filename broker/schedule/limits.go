package schedule

// Limits bound what a scheduler has in memory and hands over.
type Limits struct {
	Loaded    int // messages in the wheel: mostLoaded
	Handed    int // messages of one target with the publisher: MostHanded
	HandedAll int // messages of all targets with it: mostHandedAll
	Page      int // messages of one read of storage, a quarter of Loaded at most: PageSize
	Feed      int // accepted messages that wait for the scheduler: FeedCapacity
}

// DefaultLimits returns those that a node runs with. Only tests have smaller ones, so that what
// is rare becomes common.
func DefaultLimits() Limits {
	return Limits{Loaded: mostLoaded, Handed: MostHanded, HandedAll: mostHandedAll, Page: PageSize, Feed: FeedCapacity}
}
