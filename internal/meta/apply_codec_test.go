package meta

import (
	"errors"
	"reflect"
	"runtime/metrics"
	"slices"
	"testing"
)

// statements are Applies of every shape.
func statements() []*Apply {
	full := Partition{
		Replicas: []BrokerID{3, 1, 2}, Adding: []BrokerID{2}, Removing: []BrokerID{1}, Leader: 3, LeaderEpoch: 7,
		ISR: []BrokerID{3, 1}, ELR: []BrokerID{1}, LastKnownISR: []BrokerID{2}, MinISR: 2, Recovery: 1, UncleanEpoch: 6, Flush: true,
		Flushed: true, Dirs: []DirectoryID{{1}, {2}, {3}}, Version: 1 << 40,
	}
	return []*Apply{
		{Controller: NoBroker},
		{
			Controller: 1, ControllerEpoch: 2, Registration: 3, Revision: 4, ConfigRevision: 5, Full: true,
			Brokers: []Broker{
				{ID: 0, Registration: 9, Fenced: true},
				{
					ID: 2, Registration: 10, Epoch: 11, Rack: "a", Directories: []DirectoryID{{5}},
					Endpoints: []Endpoint{{Listener: "PLAINTEXT", Host: "h", Port: 9092, Protocol: "PLAINTEXT"}},
				},
			},
			Topics: []TopicUpdate{{ID: TopicID{1}, Name: "t", ConfigRevision: 3}, {ID: TopicID{2}, Deleted: true}},
			Partitions: []PartitionUpdate{
				{ID: TopicID{1}, Partition: 0, State: full},
				{ID: TopicID{1}, Partition: 1, State: Partition{Leader: NoBroker, LeaderEpoch: NoEpoch, Version: 1}},
				{ID: TopicID{2}, Partition: 2, Absent: true},
			},
		},
		{Brokers: []Broker{}}, // stated, and none
	}
}

// TestApplyStatesEverything: no field of a partition's value is forgotten on its way to another broker.
func TestApplyStatesEverything(t *testing.T) {
	full := reflect.ValueOf(statements()[1].Partitions[0].State)
	for i := range full.NumField() {
		if full.Field(i).IsZero() {
			t.Errorf("the statements of this test leave out the field %s", full.Type().Field(i).Name)
		}
	}
}

func TestApplyCodec(t *testing.T) { // D5
	for _, a := range statements() {
		body := AppendApply(nil, a)
		got, err := ParseApply(body)
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("got %+v, %v\nwant %+v", got, err, a)
		}
		for n := range body {
			if _, err := ParseApply(body[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%d of %d bytes: %v", n, len(body), err)
			}
		}
		if _, err := ParseApply(append(slices.Clone(body), 0)); !errors.Is(err, ErrMalformed) {
			t.Errorf("a byte too many: %v", err)
		}
	}
	for _, a := range []ApplyAnswer{{}, {Refusal: "an older controller"}, {Holding: []TopicID{{1}, {2}}}, {
		Ends: []PartitionEnd{{TopicIDPartition{TopicID{1}, 2}, LogEnd{NoEpoch, 0}}, {TopicIDPartition{TopicID{1}, 3}, LogEnd{4, 1 << 40}}},
	}} {
		got, err := ParseApplyAnswer(AppendApplyAnswer(nil, &a))
		if err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("got %+v, %v, want %+v", got, err, a)
		}
	}
}

// FuzzApply decodes arbitrary bytes as a statement, and as an answer to one: neither takes more memory than a request may,
// and what is decoded survives another turn.
func FuzzApply(f *testing.F) {
	for _, a := range statements() {
		f.Add(AppendApply(nil, a))
	}
	f.Add(AppendApplyAnswer(nil, &ApplyAnswer{Refusal: "no", Holding: []TopicID{{1}}}))
	f.Fuzz(func(t *testing.T, body []byte) {
		var a *Apply
		var err error
		checkAllocation(t, len(body), func() { a, err = ParseApply(body) })
		if err == nil {
			again, err := ParseApply(AppendApply(nil, a))
			if err != nil || !reflect.DeepEqual(a, again) {
				t.Fatalf("%+v became %+v, %v", a, again, err)
			}
		} else if !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
		var answer ApplyAnswer
		checkAllocation(t, len(body), func() { answer, err = ParseApplyAnswer(body) })
		if err == nil {
			again, err := ParseApplyAnswer(AppendApplyAnswer(nil, &answer))
			if err != nil || !reflect.DeepEqual(answer, again) {
				t.Fatalf("%+v became %+v, %v", answer, again, err)
			}
		}
	})
}

// checkAllocation fails if decode takes more memory than a request of n bytes is charged for. The runtime counts late what
// others have allocated, so only an excess that comes again is one.
func checkAllocation(t *testing.T, n int, decode func()) {
	t.Helper()
	const chargeFactor, slack = 32, 64 << 10
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	var took uint64
	for range 4 {
		metrics.Read(sample)
		before := sample[0].Value.Uint64()
		decode()
		metrics.Read(sample)
		if took = sample[0].Value.Uint64() - before; took <= uint64(chargeFactor*n+slack) {
			return
		}
	}
	t.Fatalf("decoding %d bytes took %d", n, took)
}
