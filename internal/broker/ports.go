package broker

import (
	"cmp"
	"context"
	"errors"
	"net"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/server"
)

// ports are the open listeners. They are opened before anything else, so that a taken port is told before a directory is
// touched; nobody is accepted before there is somebody to answer (U-84).
type ports struct {
	clients  []server.Listener
	brokers  net.Listener // nil for a lone broker
	registry net.Listener // nil where the registry is not embedded in a cluster
	admin    []net.Listener
	profiles net.Listener
}

// beyondLocalhost tells whether host is a loopback address that the name localhost need not lead to, such as ::1 alone: a
// client that was told "localhost" would try 127.0.0.1.
func beyondLocalhost(host string) bool {
	ip := net.ParseIP(host)
	return ip.IsLoopback() && !ip.Equal(net.IPv4(127, 0, 0, 1))
}

func (b *Broker) listen(ctx context.Context) (_ *ports, err error) {
	p := &ports{}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err := b.openKeystores(); err != nil {
		return nil, &StartError{
			Fault: CertificateUnusable, Err: err,
			Fix: "see docs/operate/tls.md for the keys and for how to make certificates",
		}
	}
	for _, l := range b.config.Listeners {
		opened, err := listen(ctx, b.config.Listen, "listeners", l.Host, l.Port)
		if err != nil {
			return nil, err
		}
		for _, open := range opened {
			client := server.Listener{Net: open, Name: l.Name, TLS: b.serverTLS(l.Name)}
			switch {
			case l.Advertised != nil:
				client.Host, client.Port = l.Advertised.Host, int32(l.Advertised.Port)
			case beyondLocalhost(l.Host):
				client.Host, client.Port = l.Host, int32(portOf(open.Addr()))
			}
			p.clients = append(p.clients, client)
		}
	}
	if self, several := b.config.self(); several {
		if p.brokers, err = b.config.Listen(ctx, "tcp", self.Internal.String()); err != nil {
			return nil, listenError(err, ClusterKey, self.Internal.Host, self.Internal.Port)
		}
	}
	if self, several := b.config.self(); several && b.config.embedsRegistry() {
		if p.registry, err = b.config.Listen(ctx, "tcp", self.Registry.String()); err != nil {
			return nil, listenError(err, ClusterKey, self.Registry.Host, self.Registry.Port)
		}
		b.registryListener = p.registry
	}
	if a := b.config.Admin; a != nil {
		if p.admin, err = listen(ctx, b.config.Listen, "admin.listener", a.Host, a.Port); err != nil {
			return nil, err
		}
	}
	if a := b.config.Profiles; a != nil {
		opened, err := listen(ctx, b.config.Listen, "pprof.listener", a.Host, a.Port)
		if err != nil {
			return nil, err
		}
		p.profiles = opened[0]
		if err := closeAll(opened[1:]); err != nil { // one loopback address is enough for a person
			return nil, err
		}
	}
	b.listening.Lock()
	defer b.listening.Unlock()
	for _, l := range p.clients {
		b.listening.clients = append(b.listening.clients, l.Net.Addr())
	}
	if p.brokers != nil {
		b.listening.brokers = p.brokers.Addr()
	}
	for _, l := range p.admin {
		b.listening.admin = append(b.listening.admin, l.Addr())
	}
	return p, nil
}

// advertise makes every client be told what the registry has: in a cluster all brokers must say the same of each (D16).
func (b *Broker) advertise(p *ports) {
	for _, e := range b.endpoints() {
		for i := range p.clients {
			if p.clients[i].Name == e.Listener {
				p.clients[i].Host, p.clients[i].Port = e.Host, e.Port
			}
		}
	}
}

// close closes what is still open: whoever serves a listener closes it too.
func (p *ports) close() error {
	all := p.admin
	for _, l := range p.clients {
		all = append(all, l.Net)
	}
	for _, l := range []net.Listener{p.brokers, p.registry, p.profiles} {
		if l != nil {
			all = append(all, l)
		}
	}
	return closeAll(all)
}

// endpoints are what the registry tells others about this broker: one for each listener.
func (b *Broker) endpoints() []meta.Endpoint {
	b.listening.Lock()
	defer b.listening.Unlock()
	var endpoints []meta.Endpoint
	at := 0 // of the listeners' first addresses among all addresses
	for _, l := range b.config.Listeners {
		e := meta.Endpoint{Listener: l.Name, Host: l.Host, Port: int32(l.Port), Protocol: cmp.Or(l.Protocol, plaintext)}
		if l.Port == 0 {
			e.Port = int32(portOf(b.listening.clients[at]))
		}
		if e.Host == "" || e.Host == "0.0.0.0" || e.Host == "::" {
			e.Host = loopbackHost
			if self, several := b.config.self(); several {
				e.Host = self.Internal.Host // the one name of this machine that others are known to reach
			}
		}
		if l.Advertised != nil {
			e.Host, e.Port = l.Advertised.Host, int32(l.Advertised.Port)
		}
		endpoints = append(endpoints, e)
		at++
		for at < len(b.listening.clients) && l.Host == loopbackHost && portOf(b.listening.clients[at]) == portOf(b.listening.clients[at-1]) {
			at++
		}
	}
	if self, several := b.config.self(); several {
		endpoints = append(endpoints, meta.Endpoint{
			Listener: brokersListener, Host: self.Internal.Host, Port: int32(portOf(b.listening.brokers)),
			Protocol: cmp.Or(b.config.BrokersProtocol, plaintext),
		})
	}
	return endpoints
}
