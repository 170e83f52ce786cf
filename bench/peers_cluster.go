package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/compat"
)

// nodesOf prepares three brokers, each with a folder and so many ports of its own; the first is that of its clients.
func nodesOf(ctx context.Context, home string, ports int, begin func(n *node, all [][]int) func(context.Context) (broker, error)) ([]*node, error) {
	free, err := freePorts(ctx, 3*ports)
	if err != nil {
		return nil, err
	}
	all := [][]int{free[:ports], free[ports : 2*ports], free[2*ports:]}
	var nodes []*node
	for i, own := range all {
		n := &node{id: int32(i + 1), addr: local(own[0]), home: filepath.Join(home, fmt.Sprint(i+1))}
		n.begin = begin(n, all)
		if err := os.MkdirAll(n.home, 0o755); err != nil {
			return nil, err
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// listed names all three in a setting, by their ids.
func listed(all [][]int, one func(id int, ports []int) string) string {
	var list []string
	for i, ports := range all {
		list = append(list, one(i+1, ports))
	}
	return strings.Join(list, ",")
}

func (tidemark) trioOverhead() time.Duration { return 4 * time.Second }

func (tidemark) whole(ctx context.Context, addr string) error { return awaitReplicas(ctx, addr) }

func (tidemark) nodes(ctx context.Context, home string) ([]*node, error) {
	return nodesOf(ctx, home, 3, func(n *node, all [][]int) func(context.Context) (broker, error) {
		cluster := listed(all, func(id int, ports []int) string { return fmt.Sprintf("%d@%s/%d", id, local(ports[1]), ports[2]) })
		return func(context.Context) (broker, error) {
			b, err := compat.StartBroker(filepath.Join(n.home, "data"), fmt.Sprintf("node.id=%d", n.id), "cluster.brokers="+cluster,
				"listeners=PLAINTEXT://"+n.addr)
			if err != nil {
				return nil, err
			}
			return ourBroker{b}, nil
		}
	})
}

func (apacheKafka) trioOverhead() time.Duration { return 25 * time.Second }

func (apacheKafka) whole(ctx context.Context, addr string) error { return awaitReplicas(ctx, addr) }

// nodes are three combined brokers and controllers, with the heap of the lone one each.
func (k apacheKafka) nodes(ctx context.Context, home string) ([]*node, error) {
	return nodesOf(ctx, home, 2, func(n *node, all [][]int) func(context.Context) (broker, error) {
		voters := listed(all, func(id int, ports []int) string { return fmt.Sprintf("%d@%s", id, local(ports[1])) })
		return func(context.Context) (broker, error) {
			b, err := k.kafka.StartBrokerAt(n.addr, n.home, fmt.Sprintf("node.id=%d", n.id), "controller.quorum.voters="+voters,
				fmt.Sprintf("listeners=PLAINTEXT://%s,CONTROLLER://%s", n.addr, local(all[n.id-1][1])))
			if err != nil {
				return nil, err
			}
			return kafkaBroker{b}, nil
		}
	})
}

func (natsServer) trioOverhead() time.Duration { return 6 * time.Second }

// whole returns when the cluster has a leader that knows of streams.
func (natsServer) whole(ctx context.Context, addr string) error {
	return poll(ctx, 50*time.Millisecond, func(ctx context.Context) (bool, error) {
		conn, js, err := natsConnect(addr)
		if err != nil {
			return false, nil
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = js.AccountInfo(ctx)
		return err == nil, nil
	})
}

func (n natsServer) nodes(ctx context.Context, home string) ([]*node, error) {
	return nodesOf(ctx, home, 2, func(of *node, all [][]int) func(context.Context) (broker, error) {
		routes := listed(all, func(_ int, ports []int) string { return fmt.Sprintf("%q", "nats://"+local(ports[1])) })
		return func(ctx context.Context) (broker, error) {
			config := fmt.Sprintf("server_name: n%d\nlisten: %q\njetstream {\n store_dir: %q\n}\ncluster {\n name: bench\n listen: %q\n routes: [%s]\n}\n",
				of.id, of.addr, filepath.Join(of.home, "data"), local(all[of.id-1][1]), routes)
			file := filepath.Join(of.home, "nats.conf")
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				return nil, err
			}
			p, err := startProcess(exec.CommandContext(context.WithoutCancel(ctx), n.path, "-c", file), natsListens) // it outlives the row
			if err != nil {
				return nil, err
			}
			if err := awaitListening(ctx, p.address); err != nil {
				p.Kill()
				return nil, fmt.Errorf("start nats-server: %w", err)
			}
			return p, nil
		}
	})
}
