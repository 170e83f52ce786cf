package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// changePatience bounds one change of etcd's membership, which waits for a majority of the members.
const changePatience = 5 * time.Second

// joinRequest is what a newcomer asks the leading member.
type joinRequest struct {
	Broker      meta.BrokerID `json:"broker"`
	Incarnation string        `json:"incarnation"`
}

// admission is the answer: the members as they are now, the newcomer among them.
type admission struct {
	ID      string           `json:"id"` // the newcomer's
	Members []admittedMember `json:"members"`
}

type admittedMember struct {
	ID   string   `json:"id"`
	URLs []string `json:"urls"`
}

// memberID binds a member to its registry directory.
func memberID(broker meta.BrokerID, incarnation string) types.ID {
	sum := sha256.Sum256([]byte(broker.String() + " " + incarnation))
	return types.ID(max(binary.BigEndian.Uint64(sum[:]), 1)) // etcd has no member 0
}

func (d *Door) serveJoin(w http.ResponseWriter, r *http.Request, t *tenant) {
	var request joinRequest
	body, err := io.ReadAll(io.LimitReader(r.Body, messageBytesMax))
	if err == nil {
		err = json.Unmarshal(body, &request)
	}
	switch {
	case err != nil || request.Incarnation == "":
		http.Error(w, "want {\"broker\", \"incarnation\"}", http.StatusBadRequest)
		return
	case t == nil || t.etcd.Server.Leader() != t.etcd.Server.MemberID():
		http.Error(w, "this broker does not lead the registry", http.StatusConflict)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), joinPatience)
	defer cancel()
	admitted, err := d.admit(ctx, t.etcd, request)
	if err != nil {
		d.logger.Info("broker is not let into the registry yet", slog.Any("broker", request.Broker), slog.Any("err", err))
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	d.reply(w, admitted)
}

// admit makes a newcomer a learner, in place of the member that its broker had before (D3). It may be asked again: a
// newcomer may crash between its admission and its start.
func (d *Door) admit(ctx context.Context, etcd *embed.Etcd, request joinRequest) (admission, error) {
	select {
	case d.joining <- struct{}{}:
		defer func() { <-d.joining }()
	case <-ctx.Done():
		return admission{}, ctx.Err()
	}
	i := slices.IndexFunc(d.members(), func(p Peer) bool { return p.Broker == request.Broker })
	if i < 0 {
		return admission{}, fmt.Errorf("broker %d is not among the members of the registry that broker %d has in its list", request.Broker, d.config.Broker)
	}
	newcomer, id := d.members()[i], memberID(request.Broker, request.Incarnation)
	// Whoever asks in a broker's name must be found at that broker's address, and nobody else.
	if a, err := d.ask(ctx, newcomer); err != nil {
		return admission{}, fmt.Errorf("ask back at %s: %w", newcomer, err)
	} else if a.Incarnation != request.Incarnation || a.Member {
		return admission{}, fmt.Errorf("another registry directory answers at %s", newcomer)
	}
	present := etcd.Server.Cluster().Members()
	if !slices.ContainsFunc(present, func(m *membership.Member) bool { return m.ID == id }) {
		if err := d.makeRoom(ctx, etcd, newcomer.Broker, present); err != nil {
			return admission{}, err
		}
		learner := membership.Member{ID: id, RaftAttributes: membership.RaftAttributes{PeerURLs: []string{d.url(newcomer)}, IsLearner: true}}
		change, cancel := context.WithTimeout(ctx, changePatience)
		defer cancel()
		var err error
		if present, err = etcd.Server.AddMember(change, learner); err != nil {
			return admission{}, fmt.Errorf("add a learner: %w", err)
		}
		d.logger.Info("broker joins the registry as a learner", slog.String("broker", newcomer.String()), slog.String("member", id.String()))
	}
	admitted := admission{ID: id.String()}
	for _, m := range present {
		admitted.Members = append(admitted.Members, admittedMember{m.ID.String(), m.PeerURLs})
	}
	return admitted, nil
}

// makeRoom removes the member that a newcomer's broker had before, and those whose broker is not in the list any more.
// It removes none whose absence would leave no majority.
func (d *Door) makeRoom(ctx context.Context, etcd *embed.Etcd, newcomer meta.BrokerID, present []*membership.Member) error {
	var answers map[meta.BrokerID]*answer // asked for when somebody must leave
	for _, m := range present {
		broker := d.broker(m.Name, m.PeerURLs)
		listed := slices.ContainsFunc(d.members(), func(p Peer) bool { return p.Broker == broker })
		if broker != newcomer && (listed || m.ID == etcd.Server.MemberID()) {
			continue
		}
		if answers == nil {
			answers = d.askAll(ctx)
		}
		voters, alive := 0, 0
		for _, other := range etcd.Server.Cluster().Members() {
			if other.IsLearner || other.ID == m.ID {
				continue
			}
			voters++
			a := answers[d.broker(other.Name, other.PeerURLs)]
			if other.ID == etcd.Server.MemberID() || a != nil && a.Registry == etcd.Server.Cluster().ID().String() {
				alive++
			}
		}
		if alive <= voters/2 {
			return fmt.Errorf("the member of broker %s must leave first, but of the %d other voters only %d answer", m.Name, voters, alive)
		}
		d.logger.Warn("member leaves the registry for a newcomer", slog.Any("broker", broker), slog.String("member", m.ID.String()), slog.Any("newcomer", newcomer))
		change, cancel := context.WithTimeout(ctx, changePatience)
		_, err := etcd.Server.RemoveMember(change, uint64(m.ID))
		cancel()
		if err != nil {
			return fmt.Errorf("remove the member of broker %s: %w", m.Name, err)
		}
	}
	return nil
}

// promotable is how many of the learners that have caught up become voters at once: two voters are worse than one, and
// four than three, so the number of voters becomes odd or stays what it is.
func promotable(voters, ready, members int) int {
	n := min(ready, members-voters)
	if n > 0 && (voters+n)%2 == 0 {
		n--
	}
	return max(n, 0)
}

// promote makes voters of the learners, if this member leads and the time has come.
func (d *Door) promote(ctx context.Context, etcd *embed.Etcd) error {
	server := etcd.Server
	if server.Leader() != server.MemberID() {
		return nil
	}
	voters := 0
	var ready []*membership.Member
	for _, m := range server.Cluster().Members() {
		if !m.IsLearner {
			voters++
		} else if d.caughtUp(ctx, etcd, m) {
			ready = append(ready, m)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	for _, m := range ready[:promotable(voters, len(ready), d.config.Members)] {
		if _, err := server.PromoteMember(ctx, uint64(m.ID)); err != nil {
			return fmt.Errorf("promote the member of broker %s: %w", m.Name, err)
		}
		d.logger.Info("member of the registry votes from now on", slog.String("broker", m.Name), slog.String("member", m.ID.String()))
	}
	return nil
}

// caughtUpLag is how many entries a learner may be behind when it becomes a voter.
const caughtUpLag = 100

func (d *Door) caughtUp(ctx context.Context, etcd *embed.Etcd, m *membership.Member) bool {
	i := slices.IndexFunc(d.config.Peers, func(p Peer) bool { return p.Broker == d.broker(m.Name, m.PeerURLs) })
	if i < 0 || !m.IsStarted() {
		return false
	}
	a, err := d.ask(ctx, d.config.Peers[i])
	return err == nil && a.Registry == etcd.Server.Cluster().ID().String() && a.Applied+caughtUpLag >= etcd.Server.AppliedIndex()
}

// announce makes the address in the list that of this member: a lone one had none, and a broker may have moved.
func (d *Door) announce(ctx context.Context, etcd *embed.Etcd) error {
	self := etcd.Server.Cluster().Member(etcd.Server.MemberID())
	address := []string{d.url(d.self())}
	if self == nil || slices.Equal(self.PeerURLs, address) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, changePatience)
	defer cancel()
	d.logger.Info("member of the registry has a new address", slog.Any("from", self.PeerURLs), slog.Any("to", address))
	if _, err := etcd.Server.UpdateMember(ctx, membership.Member{ID: self.ID, RaftAttributes: membership.RaftAttributes{PeerURLs: address}}); err != nil {
		return fmt.Errorf("change the address of the registry's member: %w", err)
	}
	return nil
}

// lonelyPause is the time between two looks of AwaitMinority.
const lonelyPause = 100 * time.Millisecond

// AwaitMinority returns true as soon as the ports of so many voters refuse connections that those left are no majority:
// nothing is decided any more. It returns false when ctx ends. One that is merely slow or silent counts as there.
func (e *Embedded) AwaitMinority(ctx context.Context) bool {
	again := time.NewTicker(lonelyPause)
	defer again.Stop()
	for ctx.Err() == nil {
		voters, gone := 0, 0
		for _, m := range e.etcd.Server.Cluster().Members() {
			if m.IsLearner {
				continue
			}
			voters++
			if e.config.Door != nil && e.config.Door.refused(ctx, e.config.Door.broker(m.Name, m.PeerURLs)) {
				gone++
			}
		}
		if voters-gone <= voters/2 {
			return true
		}
		select {
		case <-again.C:
		case <-ctx.Done():
		}
	}
	return false
}

// refused tells whether nobody listens at a broker's address.
func (d *Door) refused(ctx context.Context, broker meta.BrokerID) bool {
	i := slices.IndexFunc(d.config.Peers, func(p Peer) bool { return p.Broker == broker })
	if i < 0 || broker == d.config.Broker {
		return false
	}
	_, err := d.ask(ctx, d.config.Peers[i])
	return errors.Is(err, syscall.ECONNREFUSED)
}

// Member is a member of etcd.
type Member struct {
	ID      uint64        // 0 on a client of the registry, which does not know it
	Broker  meta.BrokerID // NoBroker when the list does not have it
	Address string        // of its registry listener; empty for the member of a single broker
	Voter   bool          // not a learner
	Leads   bool
	Index   int64 // of its last applied entry; -1 when it does not answer, and from Members
}

// Quorum is what a broker can find out about all members.
type Quorum struct {
	Term    int64 // of the leader
	Index   int64 // of the leader's last applied entry; -1 when nobody leads
	Members []Member
}

// Members lists the members that this one knows of, by broker.
func (e *Embedded) Members() []Member {
	var members []Member
	for _, m := range e.etcd.Server.Cluster().Members() {
		member := Member{ID: uint64(m.ID), Broker: meta.NoBroker, Voter: !m.IsLearner, Leads: m.ID == e.etcd.Server.Leader(), Index: -1}
		if e.config.Door != nil {
			member.Broker = e.config.Door.broker(m.Name, m.PeerURLs)
			if len(m.PeerURLs) > 0 {
				_, member.Address, _ = strings.Cut(m.PeerURLs[0], "://")
			}
		}
		members = append(members, member)
	}
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Broker, b.Broker) })
	return members
}

// Quorum asks the other members how far they are.
func (e *Embedded) Quorum(ctx context.Context) Quorum {
	q := Quorum{Term: int64(e.etcd.Server.Term()), Index: -1, Members: e.Members()}
	answers := make(map[meta.BrokerID]*answer)
	if e.config.Door != nil {
		answers = e.config.Door.askAll(ctx)
	}
	for i := range q.Members {
		m := &q.Members[i]
		if m.ID == uint64(e.etcd.Server.MemberID()) {
			m.Index = int64(e.etcd.Server.AppliedIndex())
		} else if a := answers[m.Broker]; a != nil && a.Registry != "" {
			m.Index = int64(a.Applied)
		}
		if m.Leads {
			q.Index = m.Index
		}
	}
	return q
}

// Quorum asks the members, as a client of theirs does who knows only the list. One that does not answer counts as a voter.
func (d *Door) Quorum(ctx context.Context) Quorum {
	q := Quorum{Index: -1}
	answers := d.askAll(ctx)
	for _, p := range d.members() {
		m := Member{Broker: p.Broker, Address: p.Address, Voter: true, Index: -1}
		if a := answers[p.Broker]; a != nil && a.Registry != "" {
			m.Voter, m.Leads, m.Index = a.Votes, a.Leads, int64(a.Applied)
			q.Term = max(q.Term, int64(a.Term))
			if a.Leads {
				q.Index = m.Index
			}
		}
		q.Members = append(q.Members, m)
	}
	return q
}
