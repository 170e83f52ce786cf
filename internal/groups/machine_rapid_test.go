package groups

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/tidemark-io/tidemark/internal/coordinator"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// TestMachineAgainstModel lets clients join, sync, commit, leave, die and delete in any order, with writes that are slow or
// fail and with restarts, and holds the machine against what must be true of any coordinator:
//
//   - what was acknowledged is there, and nothing else: committed offsets, also after a restart (U-116);
//   - each call is answered once, and when time passes, every parked call is (U-117);
//   - generations rise;
//   - the memory and the log agree.
func TestMachineAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &world{script: newScript(), committed: make(map[int32]int64), open: make(map[coordinator.Call]string)}
		w.t = t
		t.Repeat(map[string]func(*rapid.T){
			"join":    w.join,
			"sync":    w.sync,
			"commit":  w.commit,
			"leave":   w.leave,
			"delete":  w.delete,
			"drop":    w.deleteOffset,
			"write":   w.finishWrites,
			"advance": w.pass,
			"restart": w.restartWorld,
			"":        w.check,
		})
		w.quiesce()
	})
}

// world is a script with the clients' view of it.
type world struct {
	*script
	t *rapid.T

	members   []string        // ids that somebody was given
	gen       int32           // newest generation heard
	committed map[int32]int64 // acknowledged, by partition
	open      map[coordinator.Call]string
}

func (w *world) next(what string) coordinator.Call {
	w.call++
	w.open[w.call] = what
	return w.call
}

func (w *world) member(t *rapid.T) string {
	return rapid.SampledFrom(append([]string{"", "stranger"}, w.members...)).Draw(t, "member")
}

func (w *world) join(t *rapid.T) {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version = rapid.SampledFrom([]int16{3, 9}).Draw(t, "version")
	req.Group, req.MemberID, req.ProtocolType = group0, w.member(t), "consumer"
	if i := rapid.SampledFrom([]string{"", "", "i", "j"}).Draw(t, "instance"); i != "" {
		req.InstanceID = &i
	}
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, rapid.SampledFrom([]int32{5_000, 60_000}).Draw(t, "rebalance")
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{byte(rapid.IntRange(0, 1).Draw(t, "metadata"))}
	req.Protocols = []kmsg.JoinGroupRequestProtocol{p}
	call := w.next("join")
	w.handle(w.m.Join(call, Client{ID: "c", Host: "/h"}, fmt.Sprint(call), req, w.now))
}

func (w *world) sync(t *rapid.T) {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = group0, w.member(t), w.gen
	w.handle(w.m.Sync(w.next("sync"), req, w.now))
}

func (w *world) commit(t *rapid.T) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 9, group0, w.member(t), w.gen
	if req.MemberID == "" {
		req.Generation = -1
	}
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "t"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset = rapid.Int32Range(0, 2).Draw(t, "partition"), int64(w.call)
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	w.handle(w.m.Commit(w.next("commit"), req, w.now))
}

func (w *world) leave(t *rapid.T) {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Version, req.Group, req.MemberID = 2, group0, w.member(t)
	w.handle(w.m.Leave(w.next("leave"), req, w.now))
}

func (w *world) delete(*rapid.T) { w.handle(w.m.Delete(w.next("delete"), group0, w.now)) }

func (w *world) deleteOffset(t *rapid.T) {
	req := kmsg.NewPtrOffsetDeleteRequest()
	req.Group = group0
	topic := kmsg.NewOffsetDeleteRequestTopic()
	topic.Topic = "t"
	topic.Partitions = []kmsg.OffsetDeleteRequestTopicPartition{{Partition: rapid.Int32Range(0, 2).Draw(t, "partition")}}
	req.Topics = append(req.Topics, topic)
	w.handle(w.m.DeleteOffsets(w.next("drop"), req, w.now))
}

func (w *world) finishWrites(t *rapid.T) {
	for range rapid.IntRange(0, len(w.pending)).Draw(t, "writes") {
		w.finish(rapid.IntRange(0, 3).Draw(t, "outcome") > 0)
	}
}

// finish gives the oldest write its outcome.
func (w *world) finish(good bool) {
	next := w.pending[0]
	w.pending = w.pending[1:]
	var err error
	if good {
		w.log = append(w.log, next.Records...)
		for _, r := range next.Records {
			w.fold(r)
		}
	} else {
		err = replica.ErrNotEnoughReplicas
	}
	w.handle(w.m.Written(next.ID, err, w.now))
}

// fold keeps the naive model: the last record of a key counts.
func (w *world) fold(r coordinator.Record) {
	if r.Key[1] == groupKey {
		return
	}
	var key kmsg.OffsetCommitKey
	var value kmsg.OffsetCommitValue
	if err := key.ReadFrom(r.Key); err != nil {
		w.t.Fatal(err)
	}
	if r.Value == nil {
		delete(w.committed, key.Partition)
		return
	}
	if err := value.ReadFrom(r.Value); err != nil {
		w.t.Fatal(err)
	}
	w.committed[key.Partition] = value.Offset
}

func (w *world) pass(t *rapid.T) {
	w.runClock(time.Duration(rapid.IntRange(0, 20).Draw(t, "seconds")) * time.Second)
}

func (w *world) runClock(by time.Duration) {
	end := w.now.Add(by)
	for rounds := 0; ; rounds++ {
		at, waits := w.m.Deadline()
		if !waits || at.After(end) {
			break
		}
		if rounds > 10_000 {
			w.t.Fatal("the machine wants to be woken again and again")
		}
		if at.After(w.now) {
			w.now = at
		}
		w.handle(w.m.Wake(w.now))
	}
	w.now = end
}

// restartWorld loses the machine: what was on its way has not happened, and calls are answered by the runner.
func (w *world) restartWorld(*rapid.T) {
	w.pending = nil
	clear(w.open)
	w.m = NewMachine(w.config)
	for _, r := range w.log {
		if err := w.m.Replay(r); err != nil {
			w.t.Fatal(err)
		}
	}
	w.gen = 0 // generations that were not written may come again, to members that have to join again
	w.handle(w.m.Loaded(w.now))
}

func (w *world) handle(e coordinator.Effects) {
	w.pending = append(w.pending, e.Writes...)
	if w.m.groups[group0] == nil { // deleted: the next one of this name begins anew
		w.gen = 0
	}
	for _, r := range e.Replies {
		if w.open[r.Call] == "" {
			w.t.Fatalf("call %d is answered without a question: %s", r.Call, showReply(r.Value))
		}
		delete(w.open, r.Call)
		if join, is := r.Value.(*kmsg.JoinGroupResponse); is {
			w.joined(join)
		}
	}
}

func (w *world) joined(r *kmsg.JoinGroupResponse) {
	if r.MemberID != "" && !slices.Contains(w.members, r.MemberID) {
		w.members = append(w.members, r.MemberID)
		if len(w.members) > 6 {
			w.members = w.members[1:]
		}
	}
	if r.ErrorCode != 0 {
		return
	}
	if r.Generation < w.gen {
		w.t.Fatalf("generation %d after %d", r.Generation, w.gen)
	}
	w.gen = r.Generation
}

// check compares what a client reads with the model.
func (w *world) check(t *rapid.T) {
	read := make(map[int32]int64)
	e := w.m.Fetch(w.next("fetch"), &kmsg.OffsetFetchRequestGroup{Group: group0}, w.now)
	for _, topic := range e.Replies[0].Value.(*kmsg.OffsetFetchResponseGroup).Topics {
		for _, p := range topic.Partitions {
			read[p.Partition] = p.Offset
		}
	}
	w.handle(e)
	if g := w.m.groups[group0]; g == nil || g.state != dead {
		if !maps.Equal(read, w.committed) {
			t.Fatalf("read %v, committed %v", read, w.committed)
		}
	}
}

// quiesce lets all writes end and much time pass: nobody waits then, and the log has what is in memory.
func (w *world) quiesce() {
	for range 20 {
		for len(w.pending) > 0 {
			w.finish(true)
		}
		w.runClock(2 * time.Minute)
	}
	for call, what := range w.open {
		w.t.Fatalf("%s, call %d, waits for ever: %s", what, call, w.state())
	}
	w.check(w.t)
	w.restartWorld(w.t)
	w.check(w.t)
}
