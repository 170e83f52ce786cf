package registry

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/tidemark-io/tidemark/internal/keystore"
	"github.com/tidemark-io/tidemark/internal/meta"
)

const (
	questionPath = "/tidemark/registry"
	joinPath     = "/tidemark/registry/join"

	// answerPatience is how long a broker may take to answer a question.
	answerPatience = 2 * time.Second

	// joinPatience is how long the leading member may take to let a newcomer in: it asks the others, of whom some may be
	// silent, and changes the membership.
	joinPatience = 2*answerPatience + 2*changePatience

	// messageBytesMax bounds a question and its answer.
	messageBytesMax = 64 << 10
)

// Peer is a broker of the cluster, and where its registry listener is.
type Peer struct {
	Broker  meta.BrokerID
	Address string // host:port
}

// String is as a list of brokers has it.
func (p Peer) String() string { return fmt.Sprintf("%d@%s", p.Broker, p.Address) }

// TLS names the PEM files that brokers show each other on the registry's listeners. Both sides show a certificate that
// the authority has signed. The files are read again for each connection, so that a certificate may be renewed.
type TLS struct {
	CertFile, KeyFile, CAFile string
}

// store reads the files; nil without TLS.
func (t *TLS) store(logger *slog.Logger) (*keystore.Store, error) {
	if t == nil {
		return nil, nil
	}
	settings := keystore.Settings{ChainFile: t.CertFile, KeyFile: t.KeyFile, AuthoritiesFile: t.CAFile, ClientAuth: keystore.AuthRequired}
	store, err := keystore.Open(func() (keystore.Settings, error) { return settings, nil }, logger)
	if err != nil {
		return nil, fmt.Errorf("registry certificate: %w", err)
	}
	return store, nil
}

// info is what etcd itself dials its peers with: it opens the files by their names.
func (t *TLS) info() transport.TLSInfo {
	if t == nil {
		return transport.TLSInfo{}
	}
	return transport.TLSInfo{CertFile: t.CertFile, KeyFile: t.KeyFile, TrustedCAFile: t.CAFile, ClientCertAuth: true}
}

// clientConfig is nil without TLS.
func (t *TLS) clientConfig(logger *slog.Logger) (*tls.Config, error) {
	store, err := t.store(logger)
	if store == nil || err != nil {
		return nil, err
	}
	return store.Client(""), nil
}

// DoorConfig configures a Door.
type DoorConfig struct {
	// Broker is this broker; Peers are all brokers of the cluster, this one too.
	Broker meta.BrokerID
	Peers  []Peer

	// Members is how many of Peers, counted from the first, are members of etcd: 1, 3 or 5. The others are its clients.
	Members int

	// Cluster is the id of the cluster whose data this broker holds; empty when it holds none.
	Cluster string

	// Dir is where a member has its files, or would have.
	Dir string

	// Listener takes the other brokers. It belongs to the door.
	Listener net.Listener

	// TLS secures it, and what this broker asks others; nil for none.
	TLS *TLS

	Logger *slog.Logger
}

// Door is the registry's listener on a broker of a cluster. From the first moment on it answers which cluster this
// broker belongs to, which is what an empty broker asks everybody before it founds one (D3). Once the member in this
// process runs, it lets its peers and clients in: one port for all three.
type Door struct {
	config  DoorConfig
	logger  *slog.Logger
	scheme  string // "http" or "https"
	server  *http.Server
	client  *http.Client // asks others
	served  chan struct{}
	cluster atomic.Pointer[string]
	name    atomic.Pointer[string] // the incarnation of the registry directory
	held    atomic.Bool            // the directory holds a member, or is about to
	tenant  atomic.Pointer[tenant]
	joining chan struct{} // one slot: its holder changes the membership
	closing sync.Once
	closed  error
}

// tenant is the member behind the door.
type tenant struct {
	etcd    *embed.Etcd
	store   *etcdStore
	peers   http.Handler
	clients *grpc.Server
}

// answer is what a broker says about itself.
type answer struct {
	Broker      meta.BrokerID `json:"broker"`
	Brokers     string        `json:"brokers"`            // the list that it was given
	Incarnation string        `json:"incarnation"`        // of its registry directory; empty for none
	Cluster     string        `json:"cluster,omitempty"`  // whose data it holds
	Member      bool          `json:"member"`             // its registry directory holds a member
	Registry    string        `json:"registry,omitempty"` // id of etcd's cluster, once the member runs
	Leads       bool          `json:"leads"`              // the member is etcd's leader
	Votes       bool          `json:"votes"`              // it is not a learner
	Term        uint64        `json:"term"`               // of the leader that it knows
	Applied     uint64        `json:"applied"`            // the member's last index
}

// OpenDoor begins to answer. Close ends it.
func OpenDoor(c DoorConfig) (*Door, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if err := checkPeers(c); err != nil {
		return nil, err
	}
	d := &Door{config: c, logger: c.Logger, scheme: "http", served: make(chan struct{}), joining: make(chan struct{}, 1)}
	d.SetCluster(c.Cluster)
	d.name.Store(new(string))
	d.held.Store(initialised(c.Dir))
	dial := &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: 10 * time.Second}
	listener := c.Listener
	if c.TLS != nil {
		d.scheme = "https"
		store, err := c.TLS.store(c.Logger)
		if err != nil {
			return nil, err
		}
		dial.TLSClientConfig = store.Client("")
		listener = tls.NewListener(listener, store.Server("h2", "http/1.1"))
	}
	d.client = &http.Client{Transport: dial, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true) // etcd's clients speak gRPC
	d.server = &http.Server{
		Handler: d, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second,
		ErrorLog: slog.NewLogLogger(c.Logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(d.served)
		if err := d.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			d.logger.Error("registry listener has failed", slog.Any("err", err))
		}
	}()
	return d, nil
}

func checkPeers(c DoorConfig) error {
	seen, addresses := make(map[meta.BrokerID]bool), make(map[string]bool)
	for _, p := range c.Peers {
		if seen[p.Broker] || addresses[p.Address] {
			return fmt.Errorf("brokers of the cluster: %s occurs twice", p)
		}
		seen[p.Broker], addresses[p.Address] = true, true
	}
	switch {
	case !seen[c.Broker]:
		return fmt.Errorf("brokers of the cluster: this broker, %d, is not among them", c.Broker)
	case c.Members%2 == 0 || c.Members < 1 || c.Members > 5 || c.Members > len(c.Peers):
		return fmt.Errorf("members of the registry: %d of %d brokers; want 1, 3 or 5 of them", c.Members, len(c.Peers))
	}
	return nil
}

// SetCluster says which cluster this broker belongs to, once it knows.
func (d *Door) SetCluster(id string) { d.cluster.Store(&id) }

// Member tells whether this broker is to be a member of etcd.
func (d *Door) Member() bool {
	return slices.ContainsFunc(d.members(), func(p Peer) bool { return p.Broker == d.config.Broker })
}

// Endpoints are where etcd's clients find the members, for Dial.
func (d *Door) Endpoints() []string {
	var endpoints []string
	for _, p := range d.members() {
		endpoints = append(endpoints, d.url(p))
	}
	return endpoints
}

// Close stops answering. Connections are cut, so the member behind it goes first.
func (d *Door) Close() error {
	d.closing.Do(func() {
		d.closed = d.server.Close()
		<-d.served
		d.client.CloseIdleConnections()
		if t := d.tenant.Load(); t != nil {
			t.clients.Stop()
		}
	})
	return d.closed
}

func (d *Door) members() []Peer { return d.config.Peers[:d.config.Members] }

func (d *Door) self() Peer {
	i := slices.IndexFunc(d.config.Peers, func(p Peer) bool { return p.Broker == d.config.Broker })
	return d.config.Peers[i]
}

func (d *Door) url(p Peer) string { return d.scheme + "://" + p.Address }

// broker finds out whose member has a name or an address. The lone member of a single broker has its address only.
func (d *Door) broker(name string, urls []string) meta.BrokerID {
	for _, p := range d.config.Peers {
		if name == p.Broker.String() || name == "" && slices.Contains(urls, d.url(p)) {
			return p.Broker
		}
	}
	return meta.NoBroker
}

// others makes a client of the other members.
func (d *Door) others() (*clientv3.Client, error) {
	endpoints := slices.DeleteFunc(d.Endpoints(), func(e string) bool { return e == d.url(d.self()) })
	return newClient(DialConfig{Endpoints: endpoints, TLS: d.config.TLS, Logger: d.logger, Timeout: answerPatience})
}

func (d *Door) list() string {
	texts := make([]string, len(d.config.Peers))
	for i, p := range d.config.Peers {
		texts[i] = p.String()
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

// letIn opens the door to a member's peers and clients.
func (d *Door) letIn(etcd *embed.Etcd, store *etcdStore) {
	d.tenant.Store(&tenant{etcd: etcd, store: store, peers: etcdhttp.NewPeerHandler(etcd.GetLogger(), etcd.Server), clients: v3rpc.Server(etcd.Server, nil, nil)})
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch t := d.tenant.Load(); {
	case r.URL.Path == questionPath && r.Method == http.MethodGet:
		d.reply(w, d.answer())
	case r.URL.Path == joinPath && r.Method == http.MethodPost:
		d.serveJoin(w, r, t)
	case r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
		if t == nil {
			refuse(w)
			return
		}
		t.serveClient(w, r)
	case t == nil:
		http.Error(w, "the registry's member on this broker does not run yet", http.StatusServiceUnavailable)
	default:
		t.peers.ServeHTTP(w, r)
	}
}

// serveClient answers etcd's client API. A call that a leader took with it ends as those of this process do.
func (t *tenant) serveClient(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/etcdserverpb.Watch/") {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(t.store.reign.Load().ctx, cancel)()
		r = r.WithContext(ctx)
	}
	t.clients.ServeHTTP(w, r)
}

// refuse answers a client of etcd as a learner does: it asks another member then.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", strconv.Itoa(int(codes.Unavailable)))
	w.Header().Set("Grpc-Message", rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner))
	w.WriteHeader(http.StatusOK)
}

// answer is what this broker says about itself now.
func (d *Door) answer() answer {
	a := answer{Broker: d.config.Broker, Brokers: d.list(), Cluster: *d.cluster.Load(), Incarnation: *d.name.Load(), Member: d.held.Load()}
	if t := d.tenant.Load(); t != nil {
		server := t.etcd.Server
		a.Registry, a.Leads = server.Cluster().ID().String(), server.Leader() == server.MemberID()
		a.Term, a.Applied = server.Term(), server.AppliedIndex()
		self := server.Cluster().Member(server.MemberID())
		a.Votes = self != nil && !self.IsLearner
	}
	return a
}

func (d *Door) reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		d.logger.Debug("registry question was not answered", slog.Any("err", err))
	}
}

// ask asks one broker which cluster it belongs to.
func (d *Door) ask(ctx context.Context, p Peer) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	a, err := call[answer](ctx, d.client, http.MethodGet, d.url(p)+questionPath, nil)
	if err == nil && a.Broker != p.Broker {
		err = fmt.Errorf("broker %d answers at the address of broker %d, %s", a.Broker, p.Broker, p.Address)
	}
	return a, err
}

// askAll asks all other brokers at once. Those that do not answer are nil.
func (d *Door) askAll(ctx context.Context) map[meta.BrokerID]*answer {
	var wg sync.WaitGroup
	answers := make([]*answer, len(d.config.Peers))
	for i, p := range d.config.Peers {
		if p.Broker == d.config.Broker {
			continue
		}
		wg.Go(func() {
			a, err := d.ask(ctx, p)
			if err != nil {
				d.logger.Debug("broker does not answer for the registry", slog.Any("broker", p.Broker), slog.Any("err", err))
				return
			}
			answers[i] = &a
		})
	}
	wg.Wait()
	all := make(map[meta.BrokerID]*answer)
	for i, p := range d.config.Peers {
		if p.Broker != d.config.Broker {
			all[p.Broker] = answers[i]
		}
	}
	return all
}

// call sends one request and decodes its answer. What is not 200 is an error with the text of the answer.
func call[T any](ctx context.Context, client *http.Client, method, url string, body io.Reader) (value T, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return value, err
	}
	response, err := client.Do(request)
	if err != nil {
		return value, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, messageBytesMax))
	switch {
	case err != nil:
		return value, err
	case response.StatusCode != http.StatusOK:
		return value, errors.New(cmp.Or(strings.TrimSpace(string(text)), response.Status))
	}
	if err := json.Unmarshal(text, &value); err != nil {
		return value, fmt.Errorf("answer of %s: %w", url, err)
	}
	return value, nil
}
