package registry

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// incarnationName is the file that names a registry directory. A directory that was emptied gets another one, and with
// it another member id: what a member has promised with its vote is never forgotten under the same id (U-63).
const incarnationName = "incarnation"

// ErrSplit is returned by StartEmbedded when two brokers of one list are members of two different registries: somebody
// must decide which of them is to be emptied.
var ErrSplit = errors.New("brokers of the cluster are members of different registries")

// ErrLost is returned by StartEmbedded when no broker of the list has a registry, but one has the data of a cluster.
var ErrLost = errors.New("the registry is lost")

// askPause is the time between two rounds of questions.
const askPause = 250 * time.Millisecond

// placement is what a broker without a member does next.
type placement struct {
	found bool          // found a new cluster
	join  meta.BrokerID // ask this broker to be let into the cluster that exists; NoBroker for not
	wait  string        // what is missing for either
	err   error         // what only a person can put right
}

// decide is the rule of D3 about a broker whose registry directory is empty. A cluster that exists anywhere is joined.
// One is founded only by the lowest id of the members, and only when every other broker of the list has answered that it
// is empty: so two brokers that start at once never found two, and a broker that cannot see the others founds none.
func (d *Door) decide(answers map[meta.BrokerID]*answer) placement {
	if next, exists := d.decideExisting(answers); exists {
		return next
	}
	mine, next := *d.cluster.Load(), placement{join: meta.NoBroker}
	var silent []string
	lowest := d.config.Broker
	for _, p := range d.config.Peers {
		if p.Broker != d.config.Broker && answers[p.Broker] == nil {
			silent = append(silent, p.String())
		}
	}
	if len(silent) > 0 {
		next.wait = "an answer of " + strings.Join(silent, ", ")
		return next
	}
	for _, p := range d.config.Peers {
		switch a := answers[p.Broker]; {
		case p.Broker == d.config.Broker:
		case a.Cluster != "":
			next.err = fmt.Errorf("%w: no broker has it, and broker %d has data of cluster %s", ErrLost, p.Broker, a.Cluster)
			return next
		case a.Brokers != d.list():
			next.wait = fmt.Sprintf("broker %d to have the same list of brokers; it has %s", p.Broker, a.Brokers)
			return next
		}
	}
	for _, p := range d.members() {
		lowest = min(lowest, p.Broker)
	}
	switch {
	case mine != "":
		next.err = fmt.Errorf("%w: no broker has it, and this one has data of cluster %s", ErrLost, mine)
	case lowest != d.config.Broker:
		next.wait = fmt.Sprintf("broker %d to found the cluster", lowest)
	default:
		next.found = true
	}
	return next
}

// decideExisting is the part of decide about a cluster that exists.
func (d *Door) decideExisting(answers map[meta.BrokerID]*answer) (next placement, exists bool) {
	mine, registry, holder := *d.cluster.Load(), "", meta.NoBroker
	next.join = meta.NoBroker
	for _, p := range d.config.Peers {
		a := answers[p.Broker]
		if a == nil || !a.Member {
			continue
		}
		exists = true
		switch {
		case mine != "" && a.Cluster != "" && a.Cluster != mine:
			next.err = fmt.Errorf("%w: broker %d has %s, the data directory is of %s", ErrOtherCluster, p.Broker, a.Cluster, mine)
		case a.Registry == "": // it is starting
		case registry != "" && a.Registry != registry:
			next.err = fmt.Errorf("%w: broker %d of %s, broker %d of %s", ErrSplit, holder, registry, p.Broker, a.Registry)
		default:
			registry, holder = a.Registry, p.Broker
			if a.Leads {
				next.join = p.Broker
			}
		}
	}
	if exists && next.join == meta.NoBroker {
		next.wait = "the registry of the other brokers to have a leader"
	}
	return next, exists
}

// enter finds a place for a broker whose registry directory is empty: it returns the start of the founder, or of a
// member that was let in. It waits until one of them is possible, and says for what.
func (d *Door) enter(ctx context.Context, incarnation string, waiting func(string)) (setup func(*embed.Config), err error) {
	said := ""
	for {
		next := d.decide(d.askAll(ctx))
		if next.err != nil {
			return nil, next.err
		}
		if next.found {
			d.logger.Info("founding a registry: no broker of the cluster has one", slog.Any("broker", d.config.Broker))
			return d.founder(incarnation), nil
		}
		if next.join != meta.NoBroker {
			admitted, err := d.requestJoin(ctx, next.join, incarnation)
			if err == nil {
				return d.newcomer(admitted), nil
			}
			next.wait = fmt.Sprintf("broker %d to let this one in: %v", next.join, err)
		}
		if next.wait != said {
			said = next.wait
			d.logger.Info("registry waits", slog.String("for", said))
			waiting("waiting for " + said)
		}
		timer := time.NewTimer(askPause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w; it was waiting for %s", context.Cause(ctx), said)
		}
	}
}

// founder configures the first member of a new cluster. It is its only one: the others join it.
func (d *Door) founder(incarnation string) func(*embed.Config) {
	return func(c *embed.Config) {
		c.ClusterState, c.InitialClusterToken = embed.ClusterStateFlagNew, incarnation
		c.InitialCluster = c.Name + "=" + d.url(d.self())
	}
}

// newcomer configures a member that the cluster expects.
func (d *Door) newcomer(admitted admission) func(*embed.Config) {
	return func(c *embed.Config) {
		c.ClusterState = embed.ClusterStateFlagExisting
		var initial []string
		for _, m := range admitted.Members {
			name := "member-" + m.ID
			if m.ID == admitted.ID {
				name = c.Name
			}
			for _, url := range m.URLs {
				initial = append(initial, name+"="+url)
			}
		}
		c.InitialCluster = strings.Join(initial, ",")
	}
}

// requestJoin asks the broker that leads the registry to let this one in.
func (d *Door) requestJoin(ctx context.Context, leader meta.BrokerID, incarnation string) (admission, error) {
	body, err := json.Marshal(joinRequest{Broker: d.config.Broker, Incarnation: incarnation})
	if err != nil {
		return admission{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	i := slices.IndexFunc(d.config.Peers, func(p Peer) bool { return p.Broker == leader })
	return call[admission](ctx, d.client, http.MethodPost, d.url(d.config.Peers[i])+joinPath, bytes.NewReader(body))
}

// initialised tells whether a registry directory holds a member: it is started, and asks nobody.
func initialised(dir string) bool { return wal.Exist(filepath.Join(dir, "member", "wal")) }

// openIncarnation reads the name of a registry directory, or gives it one that survives a crash from now on. A member
// that was founded by a single broker has none.
func openIncarnation(dir string) (string, error) {
	path := filepath.Join(dir, incarnationName)
	text, err := os.ReadFile(path)
	switch {
	case err == nil && len(bytes.TrimSpace(text)) > 0:
		return string(bytes.TrimSpace(text)), nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("read the name of the registry directory: %w", err)
	case initialised(dir):
		return "", nil
	}
	name := rand.Text()
	if err := writeDurably(path, []byte(name+"\n")); err != nil {
		return "", fmt.Errorf("name the registry directory: %w", err)
	}
	return name, nil
}

// writeDurably writes a small file that is there, whole, once it returns.
func writeDurably(path string, content []byte) (err error) {
	temporary := path + ".tmp"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
