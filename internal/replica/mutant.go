package replica

// Mutant names one check of the machine that a build with the tag mutants can leave out. The simulator must catch each of
// them (internal/sim): a check that can go without anybody noticing is not tested. In every other build the checks stay.
type Mutant uint8

// The mutants.
const (
	NoMutant            Mutant = iota
	TruncateToHigh             // a follower cuts its log at its high watermark, as before KIP-101
	TruncateOneRound           // a follower cuts at the end that the leader names, whatever epoch it has, as before KIP-279
	AnyEpochFetches            // a leader counts fetches of other leader epochs (KIP-320)
	KeepProgress               // what is known of followers outlives the leader epoch
	JoinBelowEpochStart        // a follower joins the ISR below the start of the leader's epoch
	JoinBelowHigh              // a follower joins the ISR below the high watermark
	JoinAnyLife                // a join is not bound to the broker epoch in which the follower fetched
	KeepEnds                   // what is known of a follower outlives its broker epoch
	IgnorePending              // brokers that a change in flight adds do not hold the high watermark
	ForgetUnknown              // a change with an unknown outcome counts as not made
	AdvanceWhenShort           // the high watermark rises below min.insync
	CountWritten               // ends of flush partitions count before they are synced
	AnyAnswer                  // a follower takes answers to requests that it would not make any more
	RaiseWhenDiverging         // a follower takes the high watermark of an answer that tells it to truncate
	CountDiverging             // a leader counts fetches of followers whose logs diverge
	TrustResumed               // a leader that resumes its epoch takes its whole log as committed
	IgnoreUnknownEnds          // a member whose end is not known in this epoch does not hold the high watermark
	CutCommitted               // a follower cuts what was committed also if no unclean election has given it up
	mutantCount                // how many there are
)

// lacks tells whether this build leaves the check out.
func (m *Machine) lacks(check Mutant) bool { return mutantsBuilt && m.mutant == check }
