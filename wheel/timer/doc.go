// Package timer gives the wheel of package wheel a clock. See DelayQueue.
package timer
