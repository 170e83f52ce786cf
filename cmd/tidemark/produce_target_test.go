package main

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
)

// A topic whose segments are smaller than its largest message: the broker refuses a batch that no segment can hold, so the
// tighter setting bounds the client's batches, whichever comes first.
func TestTargetIsTheTighterSetting(t *testing.T) {
	setting := func(key, value string) kadm.Config { return kadm.Config{Key: key, Value: &value} }
	assumed := target{batchBytesMax: 1_000_000}
	message, segment := setting("max.message.bytes", "1048588"), setting("segment.bytes", "1048576")
	for _, test := range []struct {
		configs []kadm.Config
		want    target
	}{
		{nil, assumed},
		{[]kadm.Config{setting("retention.ms", "1")}, assumed},
		{[]kadm.Config{message}, target{1048588, "max.message.bytes"}},
		{[]kadm.Config{message, segment}, target{1048576, "segment.bytes"}},
		{[]kadm.Config{segment, message}, target{1048576, "segment.bytes"}},
		{[]kadm.Config{setting("max.message.bytes", "2000"), segment}, target{2000, "max.message.bytes"}},
		{[]kadm.Config{setting("max.message.bytes", "junk")}, assumed},
	} {
		if got := targetOf(test.configs, assumed); got != test.want {
			t.Errorf("%v: got %+v, want %+v", test.configs, got, test.want)
		}
	}
}
