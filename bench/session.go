package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// trioTouch is how much memory is touched before a peer's turn, and touchTakes how long that takes at most where the host
// has taken it back: three copies of what a few seconds of load write are more than other rows have left warm.
const (
	trioTouch  = 8 << 30
	touchTakes = 12 * time.Second
)

// session is three brokers of one peer on which the rows that want a cluster run one after the other, each on topics of
// its own. A row that fails ends the cluster, and the next one begins with another.
type session struct {
	*series
	peer   clusterPeer
	trio   *trio  // nil where the next row is to start one
	home   string // of the trio
	values map[string]float64

	failures int
}

// mostFailures is how many rows may fail on a peer's clusters before the rest is left out: each costs a new cluster, and
// the series is to end in its time.
const mostFailures = 3

// measureTrios runs rows on clusters of three: each peer's cluster is started once, and all the rows run on it.
func (s *series) measureTrios(ctx context.Context, rows []row) []rowResult {
	results := make([]rowResult, len(rows))
	for i := range rows {
		results[i] = newRowResult(&rows[i])
		s.measureNulls(ctx, &rows[i], &results[i])
	}
	for _, name := range order(peersOf(rows), s.options) {
		c := &session{series: s, peer: s.peers[name].(clusterPeer), values: map[string]float64{}}
		if err := touch(trioTouch); err != nil {
			s.tell("memory is not touched before %s: %v", name, err)
		}
		for i := range rows {
			if r := &rows[i]; r.besides(name) && ctx.Err() == nil {
				began := time.Now()
				m, err := c.measure(ctx, r)
				results[i].add(name, m, err)
				results[i].Took += time.Since(began).Seconds()
				s.tell("%-22s %-9s %s", r.id, name, outcome(&m, r, err, time.Since(began)))
			}
		}
		c.end()
	}
	return results
}

// outcome is one run in short.
func outcome(m *measurement, r *row, err error, took time.Duration) string {
	if err != nil {
		return fmt.Sprintf("failed after %.0f s: %v", took.Seconds(), err)
	}
	said := fmt.Sprintf("%s %s, in %.1f s", figure(m.Value), r.unit, took.Seconds())
	for _, name := range slices.Sorted(maps.Keys(m.Extra)) {
		said += fmt.Sprintf("; %s: %s", name, figure(m.Extra[name]))
	}
	return said
}

// peersOf are the peers of rows, tidemark first.
func peersOf(rows []row) []string {
	names := []string{ours}
	for _, peer := range []string{kafkaName, natsName} {
		for i := range rows {
			if rows[i].besides(peer) {
				names = append(names, peer)
				break
			}
		}
	}
	return names
}

// measure runs a row on the session's cluster.
func (c *session) measure(ctx context.Context, r *row) (m measurement, err error) {
	if c.failures >= mostFailures {
		return m, fmt.Errorf("left out: %d rows before it failed", c.failures)
	}
	defer func() {
		if err != nil {
			c.failures++
		}
	}()
	if err := c.ready(ctx); err != nil {
		return m, err
	}
	ctx, cancel := r.bounded(ctx, c.options)
	defer cancel()
	st := &stage{
		row: r, peer: c.peer, client: c.clientOf(r, c.peer), tools: c.tools, home: c.home, options: c.options, trio: c.trio, values: c.values,
	}
	m, err = r.run(ctx, st)
	if err == nil {
		c.values[r.id] = m.Value
		if c.peer.name() != natsName {
			err = c.trio.clear(ctx)
		}
	}
	if err != nil {
		c.end()
	}
	return m, err
}

// ready returns when there is a cluster that is whole.
func (c *session) ready(ctx context.Context) (err error) {
	if c.trio != nil {
		if err = c.trio.revive(ctx); err == nil {
			return nil
		}
		c.end()
		c.tell("a new cluster of %s: %v", c.peer.name(), err)
	}
	if c.home, err = os.MkdirTemp("", "bench-"+c.peer.name()+"-"); err != nil {
		return err
	}
	if c.trio, err = startTrio(ctx, c.peer, c.home); err != nil {
		return errors.Join(err, os.RemoveAll(c.home))
	}
	return nil
}

// end kills the cluster and forgets what it kept.
func (c *session) end() {
	if c.trio == nil {
		return
	}
	c.trio.Kill()
	c.trio = nil
	if err := os.RemoveAll(c.home); err != nil {
		c.tell("%v", err)
	}
}
