package broker

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestGroupStopAnswersParked stops the broker while a member waits for others: the member is told to look for its
// coordinator again, and the stop does not wait for the group (U-117).
func TestGroupStopAnswersParked(t *testing.T) {
	b, _ := withLines(t, t.TempDir())
	if _, code := b.groups.Locate(t.Context(), "g"); code != 0 {
		t.Fatalf("locate: %d", code)
	}
	a := &asker{t: t, client: b.client()}
	if resp := (<-a.send(a.join("g", "", "i", nil), 5)).(*kmsg.JoinGroupResponse); resp.ErrorCode != 0 {
		t.Fatalf("the first join: %d", resp.ErrorCode)
	}
	parked := a.send(a.join("g", "", "j", nil), 5)
	a.awaitState("g", "PreparingRebalance")
	b.close()
	if resp := (<-parked).(*kmsg.JoinGroupResponse); resp.ErrorCode != kerr.CoordinatorNotAvailable.Code {
		t.Errorf("the parked join: %d", resp.ErrorCode)
	}
}
