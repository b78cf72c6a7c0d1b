package stock

import "time"

// The kinds of changes of an item.
const (
	ChangeOfLimit    = "limit"         // a limit of one buyer is set
	ChangeByRecall   = "recall"        // units move from allocations back into the row
	ChangeByNotice   = "redis-notice"  // redis-stock is notified of a restock or a limit
	ChangeOfCounter  = "redis-counter" // redis-stock stages the units of an item
	ChangeOfCopy     = "redis-copy"    // another strategy copies the units to Redis
	ChangeOfUnitRows = "unit-rows"     // sql-unit makes rows of units
)

// The states of a change.
const (
	ChangeInProgress = "in-progress" // on this replica
	ChangeFailed     = "failed"      // on this replica, and not made again since
	ChangeUnfinished = "unfinished"  // by the marks in the database: on another replica, or cut off
)

// Change is a change of an item that may outlast the request that began it.
type Change struct {
	Kind, State string
	Since       time.Time // its begin, or its failure; zero: unknown
	PerUser     int64     // of a ChangeOfLimit
	Err         error     // of a failure
}
