package console

import (
	"sync"
	"time"
)

// Phases is the progress of a start: each phase has a name, a timer, and a hint of what to look at when it takes long
// (U-78). All methods may be called from any goroutine; phases may overlap.
type Phases struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		begun    time.Time
		phases   []phase
		finished time.Time
		failed   error
	}
}

type phase struct {
	name, hint   string
	begun, ended time.Time
	detail       string
}

// PhaseStatus is one phase as it is shown.
type PhaseStatus struct {
	Name string `json:"name"`
	// State is "running", "done", or "failed" for a phase that was running when the start failed.
	State string `json:"state"`
	// Milliseconds since the phase began, or its length once it is done.
	Milliseconds float64 `json:"ms"`
	// Detail is what the phase has to say about its progress, such as "412 of 1000 partitions".
	Detail string `json:"detail,omitempty"`
	// Hint says what to look at if the phase takes long; it is shown while the phase runs.
	Hint string `json:"hint,omitempty"`
}

// StartStatus is a start as it is shown.
type StartStatus struct {
	// State is "starting", "started" or "failed".
	State        string        `json:"state"`
	Milliseconds float64       `json:"ms"`
	Error        string        `json:"error,omitempty"`
	Phases       []PhaseStatus `json:"phases"`
}

// NewPhases begins a start now.
func NewPhases(now func() time.Time) *Phases {
	p := &Phases{now: now}
	p.mu.begun = now()
	return p
}

// Phase is one running phase.
type Phase struct {
	phases *Phases
	index  int
}

// Begin starts a phase. The hint is a sentence for whoever waits for it.
func (p *Phases) Begin(name, hint string) Phase {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.phases = append(p.mu.phases, phase{name: name, hint: hint, begun: p.now()})
	return Phase{p, len(p.mu.phases) - 1}
}

// Detail replaces what the phase says about its progress.
func (p Phase) Detail(text string) {
	p.phases.mu.Lock()
	p.phases.mu.phases[p.index].detail = text
	p.phases.mu.Unlock()
}

// End ends the phase; it returns its length.
func (p Phase) End() time.Duration {
	p.phases.mu.Lock()
	defer p.phases.mu.Unlock()
	ph := &p.phases.mu.phases[p.index]
	ph.ended = p.phases.now()
	return ph.ended.Sub(ph.begun)
}

// Finish ends the start: successfully with nil, else with what stopped it. Only the first call counts.
func (p *Phases) Finish(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.finished.IsZero() {
		p.mu.finished, p.mu.failed = p.now(), err
	}
}

// Finished tells whether the start is over and succeeded.
func (p *Phases) Finished() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.mu.finished.IsZero() && p.mu.failed == nil
}

// Status is a snapshot of the start.
func (p *Phases) Status() StartStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	status := StartStatus{State: "starting", Phases: make([]PhaseStatus, 0, len(p.mu.phases))}
	if !p.mu.finished.IsZero() {
		now = p.mu.finished
		status.State = "started"
	}
	if p.mu.failed != nil {
		status.State, status.Error = "failed", p.mu.failed.Error()
	}
	status.Milliseconds = milliseconds(now.Sub(p.mu.begun))
	for _, ph := range p.mu.phases {
		s := PhaseStatus{Name: ph.name, State: "done", Milliseconds: milliseconds(ph.ended.Sub(ph.begun)), Detail: ph.detail}
		if ph.ended.IsZero() {
			s.State, s.Milliseconds, s.Hint = "running", milliseconds(now.Sub(ph.begun)), ph.hint
			if p.mu.failed != nil {
				s.State = "failed"
			}
		}
		status.Phases = append(status.Phases, s)
	}
	return status
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
