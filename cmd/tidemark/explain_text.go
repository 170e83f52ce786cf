package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/controller"
	"github.com/tidemark-io/tidemark/internal/meta"
)

// fault is the shortest answer to the question.
func (e *isrExplanation) fault() string {
	if e.Leaderless != "" {
		return "it has no leader: " + e.Leaderless
	}
	if e.Leader == meta.NoBroker {
		return "it has no leader, and no controller tells why"
	}
	ids := make([]meta.BrokerID, len(e.Out))
	for i := range e.Out {
		ids[i] = e.Out[i].Broker
	}
	return fmt.Sprintf("%d of %d replicas are, broker %s not", len(e.Replicas)-len(e.Out), len(e.Replicas), idsOf(ids))
}

// print writes the state, who is out of sync, and what happened.
func (e *isrExplanation) print(io streams) error {
	out := &strings.Builder{}
	leader := "no leader"
	if e.Leader != meta.NoBroker {
		leader = fmt.Sprintf("leader %d", e.Leader)
	}
	fmt.Fprintf(out, "%s: %s, epoch %d, replicas %s, in sync %s, min.insync.replicas %d\n", e.Partition, leader, e.LeaderEpoch, idsOf(e.Replicas), idsOf(e.ISR), e.MinISR)
	if len(e.ELR)+len(e.LastKnownISR) > 0 {
		fmt.Fprintf(out, "eligible to lead although out of sync: %s; may have lost records: %s\n", idsOf(e.ELR), idsOf(e.LastKnownISR))
	}
	if e.Leaderless != "" {
		fmt.Fprintf(out, "\nnobody leads: %s\n", e.Leaderless)
	}
	for _, o := range e.Out {
		fmt.Fprintf(out, "\nbroker %d\n", o.Broker)
		for _, known := range o.Known {
			fmt.Fprintf(out, "  %s\n", known)
		}
	}
	for _, s := range e.Silent {
		if !slices.ContainsFunc(e.Out, func(o outOfSync) bool { return o.Broker == s.Broker }) {
			fmt.Fprintf(out, "\nbroker %d does not answer: %s\n", s.Broker, s.Why)
		}
	}
	if len(e.Events) > 0 {
		fmt.Fprint(out, "\nwhat happened\n")
	}
	for _, event := range e.Events {
		times := ""
		if event.Times > 1 {
			times = fmt.Sprintf(" (%d times, the last at %s)", event.Times, clock(event.Last))
		}
		fmt.Fprintf(out, "  %s  %-14s  %s%s [broker %s]\n", clock(event.At), event.Kind, event.Why, times, idsOf(event.By))
	}
	_, err := fmt.Fprint(io.out, out.String())
	return err
}

// brokerText is what a controller says of a broker.
func brokerText(by meta.BrokerID, b *controller.BrokerAccount) string {
	s := fmt.Sprintf("controller %d: it is %s", by, b.State)
	if n := len(b.Events); n > 0 && b.State != "live" {
		s += " since " + clock(b.Events[n-1].At)
	}
	if b.Unclean {
		s += ", and its last stop may have lost what its disk had not synced"
	}
	return s
}

func idsOf(ids []meta.BrokerID) string {
	if len(ids) == 0 {
		return "none"
	}
	plain := make([]int32, len(ids))
	for i := range ids {
		plain[i] = int32(ids[i])
	}
	return idsText(plain)
}

// clock is a time of the last days as people read it, in UTC.
func clock(t time.Time) string {
	t = t.UTC()
	if time.Since(t) > 20*time.Hour {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05.000")
}

func ago(d time.Duration) string {
	return d.Round(100 * time.Millisecond).String()
}
