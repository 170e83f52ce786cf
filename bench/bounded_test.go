package main

import (
	"errors"
	"testing"
	"time"
)

func TestBoundedProducer(t *testing.T) {
	p := &boundedProducer{slots: make(chan struct{}, 2)}
	for range cap(p.slots) {
		if !p.take(t.Context()) {
			t.Fatal("there are not two slots")
		}
	}
	began := time.Now()
	p.answered(t.Context(), 0, began, nil)
	p.answered(t.Context(), 1, began, nil) // not one of those that are kept
	if len(p.slots) != 0 || p.acked.Load() != 2 || len(p.took) != 1 {
		t.Errorf("%d slots are taken, %d answered, %d kept", len(p.slots), p.acked.Load(), len(p.took))
	}
	l := &boundedLoad{producers: []*boundedProducer{p}, cancel: func() {}}
	if n, err := l.count(t.Context()); n != 2 || err != nil {
		t.Errorf("counted %d, %v", n, err)
	}
	if got := l.since(began.Add(-time.Hour)); len(got) != 1 {
		t.Errorf("kept %v", got)
	}
	if got := l.since(time.Now().Add(time.Hour)); len(got) != 0 {
		t.Errorf("kept %v of the future", got)
	}
	refused := errors.New("refused")
	p.take(t.Context())
	p.answered(t.Context(), 3, began, refused)
	if p.take(t.Context()) {
		t.Error("it goes on after a record was refused")
	}
	if err := l.stop(); !errors.Is(err, refused) {
		t.Errorf("it ended with %v", err)
	}
}
