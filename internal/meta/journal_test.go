package meta

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A journal keeps the last events of a key, counts what repeats, and is bounded in events and bytes.
func TestJournal(t *testing.T) {
	var j Journal[int]
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	if j.Of(1) != nil {
		t.Error("an empty journal has events")
	}
	j.Note(1, Event{At: at, Kind: EventShrink, Broker: 3, Why: "first"})
	for i := range 5 {
		j.Note(1, Event{At: at.Add(time.Duration(i) * time.Second), Kind: EventFetchRefused, Broker: 2, Why: fmt.Sprint("try ", i)})
		j.Note(1, Event{At: at.Add(time.Duration(i) * time.Second), Kind: EventFetchRefused, Broker: 3, Why: fmt.Sprint("try ", i)})
	}
	events := j.Of(1)
	if len(events) != 3 || events[1].Times != 5 || events[2].Times != 5 || events[1].Why != "try 4" || !events[1].At.Equal(at) || !events[1].Last.Equal(at.Add(4*time.Second)) {
		t.Errorf("repeated events: %+v", events)
	}
	for i := range 2 * journalEntriesMax {
		j.Note(1, Event{Kind: EventShrink, Why: fmt.Sprint(i)})
	}
	if events = j.Of(1); len(events) != journalEntriesMax || events[0].Why != fmt.Sprint(journalEntriesMax) {
		t.Errorf("%d events, from %q", len(events), events[0].Why)
	}
	j.Forget(1)
	if j.Of(1) != nil || j.bytes != 0 || j.order.Len() != 0 {
		t.Errorf("after all is forgotten: %d bytes", j.bytes)
	}

	long := strings.Repeat("x", 2*journalWhyMax)
	for key := range journalBytesMax / journalWhyMax {
		j.Note(key, Event{Kind: EventShrink, Why: long})
		if j.bytes > journalBytesMax {
			t.Fatalf("%d bytes", j.bytes)
		}
	}
	if last := journalBytesMax/journalWhyMax - 1; j.Of(0) != nil || len(j.Of(last)) != 1 || len(j.Of(last)[0].Why) != journalWhyMax {
		t.Error("the oldest key was not forgotten, or the newest was")
	}
}
