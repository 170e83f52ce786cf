package main

// measurement is one run of a row against one peer.
type measurement struct {
	Value   float64 `json:"value"` // in the row's unit
	Seconds float64 `json:"seconds,omitempty"`
	Records int64   `json:"records,omitempty"` // moved while measured
	Bytes   int64   `json:"bytes,omitempty"`   // of their values, before compression
	P50     float64 `json:"p50_ms,omitempty"`
	P99     float64 `json:"p99_ms,omitempty"`
	P999    float64 `json:"p999_ms,omitempty"`

	ServerCPU float64 `json:"server_cpu_s,omitempty"` // of the broker, user and system
	ClientCPU float64 `json:"client_cpu_s,omitempty"`
	OthersCPU float64 `json:"others_cpu_s,omitempty"` // of everything else on the machine
	PeakMiB   float64 `json:"peak_resident_mib"`      // of the broker since its start

	Raw   float64            `json:"raw,omitempty"`   // the limit without a broker, measured right before and after, in the row's unit
	Extra map[string]float64 `json:"extra,omitempty"` // what else a row tells; the matrix names them
}

// cpuPerGiB is the broker's processor time for a GiB of values; 0 where none were moved.
func (m *measurement) cpuPerGiB() float64 {
	return ratio(m.ServerCPU, float64(m.Bytes)/(1<<30))
}

// moved sets what was moved, and from it the value.
func (m *measurement) moved(records int64, r *row) {
	m.Records, m.Bytes = records, records*int64(r.recordBytes)
	m.Value = ratio(float64(records), m.Seconds)
	if r.unit == mibPerSecond {
		m.Value = ratio(float64(m.Bytes)/(1<<20), m.Seconds)
	}
}

// tell adds a figure beside the row's own.
func (m *measurement) tell(name string, value float64) {
	if m.Extra == nil {
		m.Extra = map[string]float64{}
	}
	m.Extra[name] = value
}

// each takes one figure out of several runs.
func each(runs []measurement, figure func(*measurement) float64) []float64 {
	out := make([]float64, len(runs))
	for i := range runs {
		out[i] = figure(&runs[i])
	}
	return out
}

func valueOf(m *measurement) float64 { return m.Value }
