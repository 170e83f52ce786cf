//go:build netns

package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// usage is what a broker at rest holds.
type usage struct {
	goroutines int
	sockets    int
	files      int // in its data directory, by their names there
	others     int // pipes, event queues, what the runtime keeps
	deleted    []string
}

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d sockets, %d files, %d other descriptors, deleted files %v", u.goroutines, u.sockets, u.files, u.others, u.deleted)
}

// exceeds tells whether a broker holds more than it did: each other broker may be one connection and its goroutines more,
// because leadership and the registry's leader have moved; files of a data directory grow with its logs.
func (u usage) exceeds(before usage) bool {
	return u.goroutines > before.goroutines+20 || u.sockets > before.sockets+6 || u.others > before.others+2 || len(u.deleted) != 0
}

// usageOf asks a broker and the kernel.
func (x *chaos) usageOf(i int) (u usage, err error) {
	answer, err := (&http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + x.admin[i] + "/metrics")
	if err != nil {
		return u, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return u, err
	}
	_, rest, found := strings.Cut(string(text), "\ngo_goroutines ")
	if _, err := fmt.Sscan(rest, &u.goroutines); !found || err != nil {
		return u, fmt.Errorf("the metrics do not count goroutines: %w", err)
	}
	descriptors := fmt.Sprintf("/proc/%d/fd", x.brokers[i].pid)
	entries, err := os.ReadDir(descriptors)
	if err != nil {
		return u, err
	}
	for _, e := range entries {
		name, err := os.Readlink(filepath.Join(descriptors, e.Name()))
		switch {
		case err != nil: // closed meanwhile
		case strings.HasPrefix(name, "socket:"):
			u.sockets++
		case strings.HasSuffix(name, " (deleted)"):
			u.deleted = append(u.deleted, name)
		case strings.HasPrefix(name, x.brokers[i].dir):
			u.files++
		default:
			u.others++
		}
	}
	return u, nil
}

// settling is how long the connections of clients that have left may be there still.
const settling = 3 * time.Second

// rest returns what each broker holds when nobody has used it for a while.
func (x *chaos) rest() (now []usage) {
	x.t.Helper()
	for began := time.Now(); time.Since(began) < settling; {
		x.load.wait("rest")
	}
	for i := range x.brokers {
		u, err := x.usageOf(i)
		if err != nil {
			x.t.Fatalf("broker %d: %v", i+1, err)
		}
		x.t.Logf("broker %d at rest: %s", i+1, u)
		now = append(now, u)
	}
	return now
}

// awaitRest waits until no broker holds more than it did, and fails the test when one does for longer than peaceMax.
func (x *chaos) awaitRest(before []usage) {
	x.t.Helper()
	for began := time.Now(); ; {
		var tooMuch []string
		for i, u := range x.rest() {
			if u.exceeds(before[i]) {
				tooMuch = append(tooMuch, fmt.Sprintf("broker %d holds %s; at first it held %s", i+1, u, before[i]))
			}
		}
		if tooMuch == nil {
			return
		}
		if time.Since(began) > peaceMax {
			x.t.Error(strings.Join(tooMuch, "\n"))
			return
		}
	}
}
