package deliver

import "github.com/carillonmq/carillon/broker/schedule"

// Limits bound what a publisher has on its way.
type Limits struct {
	Flying int // records of one target that Kafka has not answered, unless it answers many more in a moment: mostFlying
	// Aside is how many dead letters of a topic that refuses them may wait until others cannot
	// be told from them: what the scheduler hands over of one target, but for its last page.
	Aside int
}

// DefaultLimits returns those that a node runs with.
func DefaultLimits() Limits {
	return Limits{Flying: mostFlying, Aside: schedule.MostHanded - schedule.PageSize}
}
