package invariant

import "testing"

func TestCheckPanicsWithTheMessage(t *testing.T) {
	Check(true, "never seen")
	defer func() {
		if got := recover(); got != "invariant broken: high watermark 7 is above the end 5" {
			t.Fatalf("recovered %v", got)
		}
	}()
	Check(false, "high watermark %d is above the end %d", 7, 5)
}
