package vfs

import (
	"errors"
	"testing"
)

func TestReportsSince(t *testing.T) {
	for release, want := range map[string]bool{
		"5.8.0": true, "5.15.0-91-generic": true, "6.1-rc3": true, "10.0.1": true,
		"5.7.19": false, "4.18.0-553.el8": false, "": false, "next": false,
	} {
		if got := reportsSince(release); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}

func TestUnwrittenBytes(t *testing.T) {
	if n, err := UnwrittenBytes(); err != nil || n < 0 {
		t.Errorf("here: %d, %v", n, err)
	}
	const text = "MemTotal:       24684084 kB\nDirty:              1108 kB\nWriteback:             4 kB\nWritebackTmp:   7 kB\n"
	if n, err := parseUnwritten([]byte(text)); err != nil || n != 1112<<10 {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{"", "\nDirty: 1 kB\n", "\nDirty: x kB\nWriteback: 1 kB\n", "\nDirty: 1 MB\nWriteback: 1 kB"} {
		if n, err := parseUnwritten([]byte(bad)); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%q: %d, %v", bad, n, err)
		}
	}
}
