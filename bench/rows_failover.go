package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// victim is the broker of three that a row takes away.
type victim int

const (
	plainBroker      victim = iota // neither of the following
	quorumLeader                   // it leads the registry, and is not the controller where that can be had
	controllerBroker               // it is the controller
)

// find is the broker of a kind, and whether it leads otherwise too: the quorum where the controller was wanted, and the
// other way round.
func (v victim) find(ctx context.Context, t *trio) (found *node, both bool, err error) {
	controller, quorum, err := t.roles(ctx)
	if err != nil {
		return nil, false, err
	}
	if v == quorumLeader && controller == quorum && t.peer.name() == ours {
		if controller, quorum, err = t.part(ctx, quorum); err != nil {
			return nil, false, err
		}
	}
	switch v {
	case quorumLeader:
		return quorum, controller == quorum, nil
	case controllerBroker:
		return controller, controller == quorum, nil
	case plainBroker:
	}
	for _, n := range t.all {
		if n != controller && n != quorum {
			found = n
		}
	}
	return found, false, nil
}

// part restarts the broker that is both the controller and the leader of the quorum until they are two, or three times.
func (t *trio) part(ctx context.Context, both *node) (controller, quorum *node, err error) {
	for range 3 {
		if err := both.stop(); err != nil {
			return nil, nil, err
		}
		if err := t.revive(ctx); err != nil {
			return nil, nil, err
		}
		if controller, quorum, err = t.roles(ctx); err != nil || controller != quorum {
			return controller, quorum, err
		}
		both = quorum
	}
	return controller, quorum, nil
}

// beatOf is how often each of so many partitions gets a record: as often as three brokers on two cores bear.
func beatOf(partitions int) time.Duration {
	return max(2*time.Millisecond, time.Duration(partitions)*500*time.Microsecond)
}

// patience is how long a producer waits: short for a broker that says nothing, or the figure would be the client's.
func (s *stage) patience() time.Duration {
	if s.row.silent {
		return 250 * time.Millisecond
	}
	return time.Second
}

// led is a topic all of whose partitions a broker leads.
func (s *stage) led(name string, partitions int, by *node) topic {
	t := s.topic(name, partitions)
	t.placement = []int32{by.id}
	for _, other := range s.trio.others(by) {
		t.placement = append(t.placement, other.id)
	}
	return t
}

// failoverRow takes away the broker that leads all partitions of a topic: the time that a producer of each partition goes
// without an answer, of the partition that waits longest.
func failoverRow(ctx context.Context, s *stage) (m measurement, err error) {
	gone, both, err := s.row.victim.find(ctx, s.trio)
	if err != nil {
		return m, err
	}
	t := s.led(benchTopic, s.row.partitions, gone)
	if err := s.create(ctx, s.trio, t); err != nil {
		return m, err
	}
	p, err := startPulse(ctx, s.trio.addrWithout(gone), beatOf(t.partitions), s.patience(), t)
	if err != nil {
		return m, err
	}
	defer p.stop()
	if err := p.steady(ctx); err != nil {
		return m, err
	}
	before, err := p.mark(ctx)
	if err != nil {
		return m, err
	}
	began := time.Now()
	if s.row.silent {
		err = gone.pause()
	} else {
		gone.kill()
	}
	if err != nil {
		return m, err
	}
	p.beat()
	if err := askAll(ctx, s.trio.addrWithout(gone), []string{t.name}, ledByOthers(gone)); err != nil {
		return m, err
	}
	m.tell(untilElected, milli(time.Since(began)))
	if err := p.back(ctx); err != nil {
		return m, err
	}
	m.Seconds = time.Since(began).Seconds()
	gaps, err := p.gaps()
	if err != nil {
		return m, err
	}
	m.Value = quantile(gaps, 1)
	if len(gaps) > 1 {
		m.tell(medianGap, quantile(gaps, 0.5))
	}
	m.tell(gapBefore, milli(before))
	if both {
		m.tell(wasBoth, 1)
	}
	return m, nil // the session lets the broker come back
}

// milli is a time in milliseconds.
func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1e3 }

// moveRow moves the leaders of all partitions of a topic to the next broker, as an operator does who gives the replicas
// another order and elects the first: the longest time that a producer goes without an answer, of several moves.
func moveRow(ctx context.Context, s *stage) (m measurement, err error) {
	t := s.led(benchTopic, s.row.partitions, s.trio.all[0])
	if err := s.create(ctx, s.trio, t); err != nil {
		return m, err
	}
	cl, err := s.trio.admin(nil)
	if err != nil {
		return m, err
	}
	defer cl.Close()
	p, err := startPulse(ctx, s.trio.addr(), beatOf(t.partitions), s.patience(), t)
	if err != nil {
		return m, err
	}
	defer p.stop()
	if err := p.steady(ctx); err != nil {
		return m, err
	}
	var before, worst time.Duration
	began := time.Now()
	for i := range s.row.times {
		if err := reorder(ctx, cl, t, rotated(t.placement, i+1)); err != nil {
			return m, err
		}
		quiet, err := p.mark(ctx)
		if err != nil {
			return m, err
		}
		if i == 0 {
			before = quiet
		}
		if err := elect(ctx, cl, t, rotated(t.placement, i+1)[0]); err != nil {
			return m, err
		}
		if err := errors.Join(p.back(ctx), pause(ctx, 100*time.Millisecond), p.back(ctx)); err != nil {
			return m, err
		}
		longest, err := p.longest()
		if err != nil {
			return m, err
		}
		worst = max(worst, longest)
	}
	m.Seconds, m.Value = time.Since(began).Seconds(), milli(worst)
	m.tell(gapBefore, milli(before))
	return m, nil
}

// rotated begins with another element.
func rotated(ids []int32, by int) []int32 {
	by %= len(ids)
	return append(append([]int32{}, ids[by:]...), ids[:by]...)
}

// reorder gives the replicas of all partitions another order, and returns when they have it.
func reorder(ctx context.Context, cl *kgo.Client, t topic, ids []int32) error {
	var wanted kadm.AlterPartitionAssignmentsReq
	for p := range t.partitions {
		wanted.Assign(t.name, int32(p), ids)
	}
	admin := kadm.NewClient(cl)
	answers, err := admin.AlterPartitionAssignments(ctx, wanted)
	if err = errors.Join(err, answers.Error()); err != nil {
		return fmt.Errorf("reassign %s: %w", t.name, err)
	}
	return poll(ctx, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		going, err := admin.ListPartitionReassignments(ctx, nil)
		return len(going) == 0, err
	})
}

// elect makes the first replica of each partition its leader, and returns when it is.
func elect(ctx context.Context, cl *kgo.Client, t topic, leader int32) error {
	admin := kadm.NewClient(cl)
	partitions := kadm.TopicsSet{}
	for p := range t.partitions {
		partitions.Add(t.name, int32(p))
	}
	answers, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, partitions)
	if err != nil {
		return fmt.Errorf("elect the leaders of %s: %w", t.name, err)
	}
	for _, p := range answers[t.name] {
		if p.Err != nil {
			return fmt.Errorf("elect the leader of %s-%d: %w", p.Topic, p.Partition, p.Err)
		}
	}
	return poll(ctx, 20*time.Millisecond, func(ctx context.Context) (bool, error) {
		cluster, err := admin.Metadata(ctx, t.name)
		if err != nil {
			return false, err
		}
		for _, p := range cluster.Topics[t.name].Partitions {
			if p.Leader != leader {
				return false, nil
			}
		}
		return true, nil
	})
}

// createEvery is the pace of the topics that a row creates while it takes a broker away.
const createEvery = 100 * time.Millisecond

// metadataRow takes away the controller, or the leader of the registry, while a topic is created every 100 ms: the longest
// time between two that were created. Beside it, how long producers waited whose partitions are on the other two brokers,
// and those whose partitions have a follower on the one taken away.
func metadataRow(ctx context.Context, s *stage) (m measurement, err error) {
	gone, both, err := s.row.victim.find(ctx, s.trio)
	if err != nil {
		return m, err
	}
	others := s.trio.others(gone)
	apart, follows := s.topic("apart", benchPartitions), s.led("follows", benchPartitions, others[0])
	apart.placement = []int32{others[0].id, others[1].id}
	follows.placement = []int32{others[0].id, others[1].id, gone.id}
	for _, t := range []topic{apart, follows} {
		if err := s.create(ctx, s.trio, t); err != nil {
			return m, err
		}
	}
	// Two producers: a request is answered when all that is in it is.
	pulses := make([]*pulse, 2)
	for i, t := range []topic{apart, follows} {
		if pulses[i], err = startPulse(ctx, s.trio.addrWithout(gone), 10*time.Millisecond, s.patience(), t); err != nil {
			return m, err
		}
		defer pulses[i].stop()
	}
	cl, err := s.trio.admin(gone)
	if err != nil {
		return m, err
	}
	defer cl.Close()
	created := startCreations(ctx, cl, s.topic("created", 1).name)
	defer created.stop()
	if err := errors.Join(pulses[0].steady(ctx), pulses[1].steady(ctx), created.await(ctx, 10)); err != nil {
		return m, err
	}
	created.mark()
	for _, p := range pulses {
		if _, err := p.mark(ctx); err != nil {
			return m, err
		}
	}
	began := time.Now()
	gone.kill()
	for _, p := range pulses {
		p.beat()
	}
	// What comes at once may have been decided before: ten topics more, and the gap is among them.
	if err := errors.Join(pulses[0].back(ctx), pulses[1].back(ctx), created.await(ctx, 10)); err != nil {
		return m, err
	}
	m.Seconds = time.Since(began).Seconds()
	m.Value = milli(created.mark())
	for i, name := range []string{dataPathGap, followedGap} {
		longest, err := pulses[i].longest()
		if err != nil {
			return m, err
		}
		m.tell(name, milli(longest))
	}
	if both {
		m.tell(wasBoth, 1)
	}
	return m, nil
}
