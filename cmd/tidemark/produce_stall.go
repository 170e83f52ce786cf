package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// stallPatience is how long no record may be acknowledged before `produce` says that it waits: records wait for a leader, or
// for a broker that is away, as long as deliveryTimeout.
const stallPatience = 5 * time.Second

// connectTrouble remembers why a broker was not reached last; a connection that is made ends the trouble.
type connectTrouble struct{ last atomic.Pointer[string] }

// OnBrokerConnect implements kgo.HookBrokerConnect.
func (c *connectTrouble) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	if err == nil {
		c.last.Store(nil)
		return
	}
	text := fmt.Sprintf("%s:%d: %v", broker.Host, broker.Port, err)
	c.last.Store(&text)
}

// watchStall says once that nothing is acknowledged although records wait, and why, if it is known. It returns when it has, or
// when ctx ends.
func watchStall(ctx context.Context, out io.Writer, topic string, waiting, acknowledged func() int64, trouble *connectTrouble) {
	tick := time.NewTicker(stallPatience)
	defer tick.Stop()
	for waited, before := false, int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		count, now := waiting(), acknowledged()
		if stuck := waited && count > 0 && now == before; !stuck {
			waited, before = count > 0, now
			continue
		}
		why := "a partition may be without a leader: tidemark topic describe " + topic
		if last := trouble.last.Load(); last != nil {
			why = *last
		}
		fmt.Fprintf(out, "%s not been acknowledged for %s, trying on for up to %s (%s)\n",
			counted(count, "record has", "records have"), stallPatience, deliveryTimeout, why)
		return
	}
}
