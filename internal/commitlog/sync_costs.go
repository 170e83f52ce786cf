package commitlog

import "time"

const (
	// syncTrialRounds is how many rounds in a row a way of syncing several logs is tried before it is judged.
	syncTrialRounds = 8
	// syncTrialEvery is when the way that is not taken is tried again, and syncTrialEveryMax the most to which that grows
	// while it goes on losing.
	syncTrialEvery    = 5 * time.Second
	syncTrialEveryMax = 5 * time.Minute
)

// syncCosts remembers what syncs of several logs have cost, to choose between one sync for each log and one SyncAll for
// all. The first costs a commit of the file system's journal for almost every log. The second costs one for all of them, but
// also writes what other processes have left unwritten on the same file system, and nobody can know how much that is. So
// both are tried, and the loser again now and then.
type syncCosts struct {
	each, all syncCost // of one log; of one SyncAll
	trial     *syncCost
	left      int // rounds of the trial
	// failed says that a SyncAll has failed. It has not said whose bytes are lost, perhaps those of a log that was not in
	// its round, and will not say it again: from then on each file is asked.
	failed bool
}

// syncCost is what one way has cost.
type syncCost struct {
	took   time.Duration // smoothed
	rounds int           // that were measured, up to syncTrialRounds
	due    time.Time     // of the next trial, while it is not the way that is taken
	pause  time.Duration // between the last trial and the next
}

// chooseAll tells whether to sync n logs, more than one, with SyncAll.
func (c *syncCosts) chooseAll(n int, now time.Time) bool {
	switch {
	case c.failed:
		return false
	case c.each.rounds < syncTrialRounds:
		return n > syncAllAbove
	case c.all.rounds < syncTrialRounds:
		return true
	}
	all := c.all.took <= c.each.took*time.Duration(n)
	other := &c.all
	if all {
		other = &c.each
	}
	if c.left == 0 && !now.Before(other.due) {
		c.trial, c.left = other, syncTrialRounds
	}
	if c.left > 0 {
		return c.trial == &c.all
	}
	return all
}

// note takes in what a round of n logs took, with SyncAll or without.
func (c *syncCosts) note(all bool, n int, now time.Time, took time.Duration) {
	way, cost, other := &c.each, took/time.Duration(n), c.all.took
	if all {
		way, cost, other = &c.all, took, c.each.took*time.Duration(n)
	}
	trial, hopeless := c.left > 0 && c.trial == way, other > 0 && took > 4*other
	if way.rounds == 0 || trial && c.left == syncTrialRounds {
		way.took = cost // what it was before the trial is old
	}
	way.took = max(way.took+(cost-way.took)/4, 1)
	if way.rounds = min(way.rounds+1, syncTrialRounds); hopeless {
		way.rounds = syncTrialRounds // it is not worth another one
	}
	if !trial {
		way.pause = syncTrialEvery
		way.due = now.Add(way.pause)
		return
	}
	if c.left--; hopeless {
		c.left = 0
	}
	way.pause = min(2*way.pause, syncTrialEveryMax)
	way.due = now.Add(way.pause)
}
