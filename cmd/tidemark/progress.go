package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

const (
	progressEvery = 200 * time.Millisecond
	progressWidth = 24
)

// progress draws one line on a terminal and nothing anywhere else. It is used by one goroutine.
type progress struct {
	w       io.Writer // nil: silent
	verb    string
	total   int64 // of the unit that bar counts; 0 if unknown
	started time.Time
	drawn   time.Time
}

// newProgress draws on w if w is a terminal and stdout is not one (where it would mix with the data).
func newProgress(w, stdout io.Writer, verb string, total int64) *progress {
	p := &progress{verb: verb, total: total, started: time.Now()}
	if isTerminal(w) && !isTerminal(stdout) {
		p.w = w
	}
	return p
}

// update redraws at most five times a second. done counts in the unit of total.
func (p *progress) update(done, records, bytes int64) {
	if p.w == nil || time.Since(p.drawn) < progressEvery {
		return
	}
	p.drawn = time.Now()
	p.draw(done, records, bytes)
}

func (p *progress) draw(done, records, bytes int64) {
	rate := int64(float64(bytes) / max(time.Since(p.started).Seconds(), 0.001))
	bar := ""
	if p.total > 0 {
		filled := int(min(done, p.total) * progressWidth / p.total)
		bar = fmt.Sprintf("[%s%s] %3d%% ", strings.Repeat("#", filled), strings.Repeat(".", progressWidth-filled),
			min(done, p.total)*100/p.total)
	}
	fmt.Fprintf(p.w, "\r\x1b[K%s%s %d records, %s, %s/s", bar, p.verb, records, bytesText(bytes), bytesText(rate))
}

// finish removes the line.
func (p *progress) finish() {
	if p.w != nil && !p.drawn.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
