package sim

import "github.com/tidemark-io/tidemark/internal/replica"

// Mutants of what surrounds the machines: the registry, the controller, the log's producer state, the reads.
const (
	// trustUnclean unfences a broker that lost power as if it had not (KAFKA-18106).
	trustUnclean replica.Mutant = 255 - iota
	// keepEpoch lets a leader that lost power lead on in the same epoch (E-8).
	keepEpoch
	// ignoreSeat lets a controller write that holds the seat no more.
	ignoreSeat
	// obeyDeposed lets a broker act on statements of older controllers, and on older ones.
	obeyDeposed
	// readToEnd shows consumers what is not committed.
	readToEnd
	// forgetSequences lets followers not fold what they copy: a new leader does not recognise retries.
	forgetSequences
	// electAnybody elects any live replica where nobody eligible is, whatever the topic allows.
	electAnybody
	// keepSequences keeps what is known of producers when a log is truncated (KAFKA-12520).
	keepSequences
)
