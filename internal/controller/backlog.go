package controller

import (
	"context"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// commitMax is how many decisions are written at once: as many transactions as the registry has under way together.
const commitMax = 1024

// backlog is what was decided and is not written yet. Partitions that get another leader go first: somebody waits for them,
// and a broker that is gone leaves many more from whose ISR it is merely dropped. A decision about a value that has changed
// meanwhile meets another version of it and changes nothing.
type backlog struct {
	decisions    map[meta.TopicIDPartition]decided
	urgent, rest []meta.TopicIDPartition // in order; those that have no decision any more are skipped
}

func newBacklog() backlog { return backlog{decisions: make(map[meta.TopicIDPartition]decided)} }

// replace notes what was decided when these partitions were looked at; what was decided about them before is void.
func (b *backlog) replace(looked map[meta.TopicIDPartition]bool, decisions []decided) {
	for tp := range looked {
		delete(b.decisions, tp)
	}
	for _, d := range decisions {
		b.decisions[d.TopicIDPartition] = d
		if d.State.Leader != d.before.Leader {
			b.urgent = append(b.urgent, d.TopicIDPartition)
		} else {
			b.rest = append(b.rest, d.TopicIDPartition)
		}
	}
}

// take removes up to n decisions.
func (b *backlog) take(n int) []decided {
	var taken []decided
	for _, queue := range []*[]meta.TopicIDPartition{&b.urgent, &b.rest} {
		for len(*queue) > 0 && len(taken) < n {
			tp := (*queue)[0]
			*queue = (*queue)[1:]
			if d, found := b.decisions[tp]; found {
				taken = append(taken, d)
				delete(b.decisions, tp)
			}
		}
	}
	return taken
}

// wakeWriter makes the writer look at the backlog.
func (t *term) wakeWriter() {
	select {
	case t.decided <- struct{}{}:
	default:
	}
}

// writeDecisions writes what was decided, until ctx ends or the registry refuses. It runs beside the watch, so that the first
// changes are folded and stated while the last are still to be written.
func (t *term) writeDecisions(ctx context.Context) error {
	for {
		t.mu.Lock()
		decisions := t.mu.backlog.take(commitMax)
		t.mu.Unlock()
		if len(decisions) == 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-t.decided:
			}
			continue
		}
		if _, _, err := t.commit(ctx, decisions); err != nil {
			return err
		}
	}
}
