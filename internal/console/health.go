package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// liveness is the body of /livez.
type liveness struct {
	Status string `json:"status"` // "alive", or "failed": a restart is the remedy
	Error  string `json:"error,omitempty"`
}

func (c *Console) livez(w http.ResponseWriter, r *http.Request) {
	body := liveness{Status: "alive"}
	code := http.StatusOK
	if c.config.Live != nil {
		if err := c.config.Live(); err != nil {
			body, code = liveness{"failed", err.Error()}, http.StatusServiceUnavailable
		}
	}
	reply(w, r, code, body, func(b *strings.Builder) {
		fmt.Fprintln(b, body.Status)
		if body.Error != "" {
			fmt.Fprintln(b, body.Error)
		}
	})
}

func (c *Console) startupz(w http.ResponseWriter, r *http.Request) {
	status := c.config.Phases.Status()
	code := http.StatusServiceUnavailable
	if status.State == "started" {
		code = http.StatusOK
	}
	reply(w, r, code, status, func(b *strings.Builder) {
		fmt.Fprintf(b, "%s %.0f ms\n", status.State, status.Milliseconds)
		if status.Error != "" {
			fmt.Fprintln(b, status.Error)
		}
		for _, p := range status.Phases {
			fmt.Fprintf(b, "%-8s %9.1f ms  %s", p.State, p.Milliseconds, p.Name)
			if p.Detail != "" {
				fmt.Fprintf(b, " (%s)", p.Detail)
			}
			if p.Hint != "" {
				fmt.Fprintf(b, ": %s", p.Hint)
			}
			fmt.Fprintln(b)
		}
	})
}

// readiness is the body of /readyz.
type readiness struct {
	Status string        `json:"status"` // "ready", "degraded" (and serving), "starting" or "not ready"
	Checks []checkStatus `json:"checks"`
}

type checkStatus struct {
	Name  string `json:"name"`
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
}

func (c *Console) readyz(w http.ResponseWriter, r *http.Request) {
	body := readiness{Status: "ready", Checks: []checkStatus{}}
	code := http.StatusOK
	if !c.config.Phases.Finished() {
		body.Status, code = "starting", http.StatusServiceUnavailable
	} else if c.config.Ready != nil {
		for _, check := range c.config.Ready() {
			status := checkStatus{Name: check.Name, OK: check.Err == nil}
			if check.Err != nil {
				status.Error = check.Err.Error()
				if !check.Degraded {
					body.Status, code = "not ready", http.StatusServiceUnavailable
				} else if code == http.StatusOK {
					body.Status = "degraded"
				}
			}
			body.Checks = append(body.Checks, status)
		}
	}
	reply(w, r, code, body, func(b *strings.Builder) {
		fmt.Fprintln(b, body.Status)
		for _, check := range body.Checks {
			if check.OK {
				fmt.Fprintf(b, "ok    %s\n", check.Name)
			} else {
				fmt.Fprintf(b, "fault %s: %s\n", check.Name, check.Error)
			}
		}
	})
}

// reply writes a body as JSON if the request asks for it, else as text.
func reply(w http.ResponseWriter, r *http.Request, code int, body any, text func(*strings.Builder)) {
	w.Header().Set("Cache-Control", "no-store")
	if wantsJSON(r) {
		encoded, err := json.MarshalIndent(body, "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(append(encoded, '\n')) // the client may be gone: that is its affair
		return
	}
	var b strings.Builder
	text(&b)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(b.String()))
}

func wantsJSON(r *http.Request) bool {
	return r.URL.Query().Get("format") == "json" || strings.Contains(r.Header.Get("Accept"), "application/json")
}
