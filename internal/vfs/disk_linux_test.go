package vfs

import "testing"

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
