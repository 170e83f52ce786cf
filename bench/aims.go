package main

import (
	"fmt"
	"math"
)

// aim is something that a row should reach.
type aim struct {
	text string
	// reached gives the figure that the aim is about; not ok where it was not measured, which is no miss.
	reached func(*rowResult, *report) (figure float64, ok bool)
	least   float64
	most    float64 // 0 for none
}

// met says whether a figure reaches the aim.
func (a *aim) met(figure float64) bool {
	return figure >= a.least && (a.most == 0 || figure <= a.most)
}

func atLeast(text string, least float64, of func(*rowResult, *report) (float64, bool)) aim {
	return aim{text: fmt.Sprintf("%s ≥ %.4g", text, least), reached: of, least: least}
}

func atMost(text string, most float64, of func(*rowResult, *report) (float64, bool)) aim {
	return aim{text: fmt.Sprintf("%s ≤ %.4g", text, most), reached: of, most: most}
}

// measuredRatio is a of b where both were measured.
func measuredRatio(a, b float64) (float64, bool) { return ratio(a, b), a != 0 && b != 0 }

func ofNull(least float64) aim {
	return atLeast("of null", least, func(r *rowResult, _ *report) (float64, bool) { return measuredRatio(r.value(ours), r.value(nullName)) })
}

func ofPeer(peer string, least float64) aim {
	return atLeast("of "+peer, least, func(r *rowResult, _ *report) (float64, bool) { return measuredRatio(r.value(ours), r.value(peer)) })
}

// timeOfPeer is for rows of which less is better.
func timeOfPeer(peer string, most float64) aim {
	return atMost("of "+peer, most, func(r *rowResult, _ *report) (float64, bool) { return measuredRatio(r.value(ours), r.value(peer)) })
}

func cpuAtMost(most float64) aim {
	return atMost("CPU s/GiB", most, func(r *rowResult, _ *report) (float64, bool) { return measuredRatio(r.cpuPerGiB(ours), 1) })
}

func cpuOfPeer(peer string, most float64) aim {
	return atMost("CPU of "+peer+"'s", most, func(r *rowResult, _ *report) (float64, bool) {
		return measuredRatio(r.cpuPerGiB(ours), r.cpuPerGiB(peer))
	})
}

func valueAtLeast(least float64) aim {
	return atLeast("value", least, func(r *rowResult, _ *report) (float64, bool) { return measuredRatio(r.value(ours), 1) })
}

func valueAtMost(most float64) aim {
	return atMost("value", most, func(r *rowResult, _ *report) (float64, bool) { return measuredRatio(r.value(ours), 1) })
}

// valueOrNull is met by the value, or where the client is the limit.
func valueOrNull(least, null float64) aim {
	return aim{
		text:  fmt.Sprintf("value ≥ %.4g or of null ≥ %.4g", least, null),
		least: 1,
		reached: func(r *rowResult, _ *report) (float64, bool) {
			return max(r.value(ours)/least, ratio(r.value(ours), r.value(nullName))/null), r.value(ours) > 0
		},
	}
}

// ofRow compares with another row of ours.
func ofRow(id string, least float64) aim {
	return atLeast("of "+id, least, func(r *rowResult, all *report) (float64, bool) {
		other := all.row(id)
		if other == nil {
			return 0, false
		}
		return measuredRatio(r.value(ours), other.value(ours))
	})
}

func ofNullOrPageCache(least float64) aim {
	return atLeast("of the lesser of null and page-cache write", least, func(r *rowResult, all *report) (float64, bool) {
		return measuredRatio(r.value(ours), lesser(r.value(nullName), all.limit(func(l *limits) float64 { return l.PageCacheWrite })))
	})
}

func ofRaw(least float64) aim {
	return atLeast("of raw", least, func(r *rowResult, _ *report) (float64, bool) { return r.ofRaw(ours) })
}

func ofRawOrNull(least float64) aim {
	return atLeast("of the lesser of raw and null", least, func(r *rowResult, _ *report) (float64, bool) {
		return measuredRatio(r.value(ours), lesser(median(each(r.Runs[ours], func(m *measurement) float64 { return m.Raw })), r.value(nullName)))
	})
}

// lesser is the smaller of those that were measured.
func lesser(a, b float64) float64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return math.Min(a, b)
}

func p99OfRawRound(most float64) aim {
	return atMost("p99 in raw rounds' p99", most, func(r *rowResult, _ *report) (float64, bool) {
		all := each(r.Runs[ours], func(m *measurement) float64 { return ratio(m.P99, m.Extra[rawRoundP99]) })
		return median(all), len(all) > 0
	})
}

func p50AtMost(most float64) aim {
	return atMost("p50", most, func(r *rowResult, _ *report) (float64, bool) {
		return measuredRatio(r.median(ours, func(m *measurement) float64 { return m.P50 }), 1)
	})
}

func p999AtMost(most float64) aim {
	return atMost("p99.9", most, func(r *rowResult, _ *report) (float64, bool) {
		return measuredRatio(r.median(ours, func(m *measurement) float64 { return m.P999 }), 1)
	})
}

func extraAtLeast(name string, least float64) aim {
	return atLeast(name, least, func(r *rowResult, _ *report) (float64, bool) { return measuredRatio(r.extra(ours, name), 1) })
}

func extraAtMost(name string, most float64) aim {
	return atMost(name, most, func(r *rowResult, _ *report) (float64, bool) { return measuredRatio(r.extra(ours, name), 1) })
}

// The verdicts on a row.
const (
	verdictOK     = "ok"
	verdictShort  = "short"  // an aim is missed
	verdictLost   = "lost"   // a peer is better
	verdictFailed = "failed" // it could not be measured
)

// judge compares a row with its peers and its aims, and says in words what is missed.
func (r *rowResult) judge(of *row, all *report) (verdict string, missed []string) {
	if cause := r.Failed[ours]; cause != "" {
		return verdictFailed, []string{cause}
	}
	verdict = verdictOK
	for i := range of.aims {
		if figure, ok := of.aims[i].reached(r, all); ok && !of.aims[i].met(figure) {
			verdict = verdictShort
			missed = append(missed, fmt.Sprintf("%s, is %.3g", of.aims[i].text, figure))
		}
	}
	for _, peer := range of.peers {
		mine, theirs := r.value(ours), r.value(peer)
		if theirs != 0 && mine != theirs && (mine > theirs) == of.less {
			verdict = verdictLost
			missed = append(missed, fmt.Sprintf("%s is better: %.4g against %.4g", peer, theirs, mine))
		}
	}
	return verdict, missed
}

// cause says what a run was short of, from what it used: it is a reading of the same measurement, not a guess.
func (r *rowResult) cause(of *row, processors int) string {
	seconds := r.median(ours, func(m *measurement) float64 { return m.Seconds })
	cores := func(cpu func(*measurement) float64) float64 { return ratio(r.median(ours, cpu), seconds) }
	server := cores(func(m *measurement) float64 { return m.ServerCPU })
	client := cores(func(m *measurement) float64 { return m.ClientCPU })
	others := cores(func(m *measurement) float64 { return m.OthersCPU })
	if server+client+others == 0 {
		return ""
	}
	used := fmt.Sprintf("of %d cores the broker used %.2f, the client %.2f, others %.2f", processors, server, client, others)
	full := server+client+others >= 0.9*float64(processors)
	switch {
	case r.value(nullName) > 0 && !of.less && r.value(ours) >= 0.95*r.value(nullName):
		return used + "; the client is the limit, it is no faster against a broker that does nothing"
	case full && others > 0.25*float64(processors):
		return used + "; the processors were full, and others took a good part of them"
	case full && client > server:
		return used + "; the processors were full, most of it the client"
	case full:
		return used + "; the processors were full"
	default:
		return used + "; the processors were not full: it waited"
	}
}
