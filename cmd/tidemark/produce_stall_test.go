package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A producer whose records wait for a leader or a broker says so after a while, instead of standing still for two minutes.
func TestWatchStall(t *testing.T) {
	for name, test := range map[string]struct {
		acknowledged func(calls int64) int64
		waiting      int64
		err          error
		want         string
	}{
		"records go through": {acknowledged: func(calls int64) int64 { return calls }, waiting: 3},
		"nothing to do":      {acknowledged: func(int64) int64 { return 7 }},
		"no leader":          {acknowledged: func(int64) int64 { return 7 }, waiting: 3, want: "3 records have not been acknowledged for 5s, trying on for up to 2m0s (a partition may be without a leader: tidemark topic describe lines)\n"},
		"broker away":        {acknowledged: func(int64) int64 { return 0 }, waiting: 1, err: errors.New("refused"), want: "1 record has not been acknowledged for 5s, trying on for up to 2m0s (host:9092: refused)\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var trouble connectTrouble
				trouble.OnBrokerConnect(kgo.BrokerMetadata{Host: "host", Port: 9092}, 0, nil, test.err)
				var out strings.Builder
				calls := int64(0)
				acknowledged := func() int64 { calls++; return test.acknowledged(calls) }
				watchStall(ctx, &out, "lines", func() int64 { return test.waiting }, acknowledged, &trouble)
				if out.String() != test.want {
					t.Errorf("got %q, want %q", out.String(), test.want)
				}
			})
		})
	}
}

func TestFlagErrorsSayWhatIsRight(t *testing.T) {
	for _, test := range []struct{ arg, want string }{
		{"--partitions=many", `invalid argument "many" for "--partitions" flag: want a number; see`},
		{"--partitions=99999999999", `invalid argument "99999999999" for "--partitions" flag: want a number nearer to 0; see`},
		{"--dry-run=perhaps", `invalid argument "perhaps" for "--dry-run" flag: want true or false; see`},
	} {
		if _, stderr, code := command(t, "", "topic", "create", "x", test.arg); code != exitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: code %d, %q, want %q", test.arg, code, stderr, test.want)
		}
	}
}
