package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// refusalsNeeded is how many brokers must have found the same before a registration ends early, if there are as many.
const refusalsNeeded = 2

// ReportRefusal says that a broker's port refuses connections: its process is gone, and nobody has to wait for its lease
// (D6). One broker may be wrong about that, because of what lies between the two; so the registration ends, and with it
// the broker's live key and the controller's seat if it holds it, when two have found the same of it, or the only other one
// that is registered. A registration that ended wrongly is made again by its broker. The report goes with the reporter's own
// registration, me.
func (c *Cluster) ReportRefusal(ctx context.Context, by meta.BrokerID, me Registered, of meta.BrokerID, registration int64) (ended bool, err error) {
	result, err := c.store.Txn(ctx, Txn{
		Conds: []Cond{CreatedAt(registrationKey(of), registration), CreatedAt(registrationKey(by), me.Epoch)},
		Then:  []Op{PutLeased(refusalKey(of, by), encode(liveValue{Registration: registration}), me.Lease), Get(registrationKey(of))},
	})
	switch {
	case errors.Is(err, ErrLeaseGone), err == nil && !result.Succeeded:
		return false, nil // it is over already, or this broker's own is
	case err != nil:
		return false, fmt.Errorf("report that broker %d is gone: %w", of, err)
	}
	others, witnesses, err := c.witnesses(ctx, of, registration)
	if err != nil || witnesses < min(refusalsNeeded, others) {
		return false, err
	}
	if err := ignoreGone(c.store.Revoke(ctx, result.Results[1].Entry.Lease)); err != nil {
		return false, fmt.Errorf("end the registration of broker %d: %w", of, err)
	}
	if _, err := c.store.Txn(ctx, Txn{Then: []Op{DeletePrefix(refusalPrefix(of))}}); err != nil {
		return true, fmt.Errorf("clear the reports about broker %d: %w", of, err)
	}
	return true, nil
}

// witnesses counts the other brokers that are registered, and those of them that have reported a registration.
func (c *Cluster) witnesses(ctx context.Context, of meta.BrokerID, registration int64) (others, witnesses int, err error) {
	var registered []string
	_, err = c.pages(ctx, registrationPrefix, func(entry Entry) {
		if id := strings.TrimPrefix(entry.Key, registrationPrefix); id != of.String() {
			registered = append(registered, id)
		}
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count brokers: %w", err)
	}
	_, err = c.pages(ctx, refusalPrefix(of), func(entry Entry) {
		report, err := decode[liveValue](entry)
		if err == nil && report.Registration == registration && slices.Contains(registered, strings.TrimPrefix(entry.Key, refusalPrefix(of))) {
			witnesses++
		}
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count reports about broker %d: %w", of, err)
	}
	return len(registered), witnesses, nil
}
