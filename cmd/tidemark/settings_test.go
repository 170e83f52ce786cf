package main

import (
	"maps"
	"slices"
	"testing"

	"github.com/tidemark-io/tidemark/internal/meta"
)

var someKeys = []*meta.ConfigKey{
	{Name: "log.retention.ms", Type: meta.LongType, Broker: true},
	{Name: "log.dirs", Type: meta.ListType, Broker: true},
	{Name: "node.id", Type: meta.IntType, Broker: true},
	{Name: "num.io.threads", Type: meta.IntType, Broker: true, NoEffect: true},
}

func TestResolvePrecedence(t *testing.T) {
	got, err := resolve(sources{
		file: []property{
			{key: "log.retention.ms", value: " 1 ", line: 1},
			{key: "node.id", value: "1", line: 2},
			{key: "num.io.threads", value: "8", line: 3},
			{key: "log.dirs", value: "a", line: 4},
		},
		fileName: "server.properties",
		env: []string{
			"HOME=/", "TIDEMARK_LOG_RETENTION_MS=2", "TIDEMARK_NODE_ID=2",
			// What Kubernetes gives to a pod beside a service called tidemark.
			"TIDEMARK_SERVICE_HOST=10.0.0.1", "TIDEMARK_SERVICE_PORT=9092", "TIDEMARK_SERVICE_PORT_KAFKA=9092", "TIDEMARK_PORT=tcp://10.0.0.1:9092",
			"TIDEMARK_PORT_9092_TCP=tcp://10.0.0.1:9092", "TIDEMARK_PORT_9092_TCP_ADDR=10.0.0.1",
		},
		flags: []setting{{"node.id", "3"}},
	}, someKeys)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"log.retention.ms": "2", "node.id": "3", "num.io.threads": "8", "log.dirs": "a"}
	if !maps.Equal(got.values, want) {
		t.Errorf("got %v, want %v", got.values, want)
	}
	if !slices.Equal(got.noEffect, []string{"num.io.threads"}) {
		t.Errorf("without effect: %v", got.noEffect)
	}
}

// A key may be set for one listener, in every source.
func TestResolveForOneListener(t *testing.T) {
	got, err := resolve(sources{
		file:  []property{{key: "listener.name.partners.ssl.client.auth", value: "required", line: 1}},
		env:   []string{"TIDEMARK_LISTENER_NAME_OUT_SIDE_SSL_CLIENT_AUTH=requested"},
		flags: []setting{{"listener.name.a.num.io.threads", "8"}},
	}, append(someKeys, &meta.ConfigKey{Name: "ssl.client.auth", Type: meta.StringType, Broker: true}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"listener.name.partners.ssl.client.auth": "required", "listener.name.out_side.ssl.client.auth": "requested",
		"listener.name.a.num.io.threads": "8",
	}
	if !maps.Equal(got.values, want) || !slices.Equal(got.noEffect, []string{"listener.name.a.num.io.threads"}) {
		t.Errorf("got %v, without effect %v", got.values, got.noEffect)
	}
	for _, name := range []string{"listener.name.a.nonsense", "listener.name.a"} {
		if _, err := resolve(sources{flags: []setting{{name, "1"}}}, someKeys); err == nil {
			t.Errorf("%s is taken for a key", name)
		}
	}
}

// An unknown key names the key, where it stands and the nearest valid one.
func TestResolveRefuses(t *testing.T) {
	for _, test := range []struct {
		from sources
		want string
	}{
		{
			sources{file: []property{{"log.retension.ms", "1", 7}}, fileName: "server.properties"},
			`server.properties line 7: unknown key "log.retension.ms"; did you mean "log.retention.ms"?`,
		},
		{sources{flags: []setting{{"whatever.it.is", "1"}}}, `--set: unknown key "whatever.it.is"`},
		{sources{flags: []setting{{"segment.bytes", "1"}}}, `--set: unknown key "segment.bytes"`},
		{
			sources{env: []string{"TIDEMARK_NODE_IDD=1"}},
			`environment: unknown variable TIDEMARK_NODE_IDD; did you mean "TIDEMARK_NODE_ID"?`,
		},
		{
			sources{file: []property{{"node.id", "one", 2}}, fileName: "f"},
			"f line 2: Invalid value one for configuration node.id: Not a number of type INT",
		},
	} {
		if _, err := resolve(test.from, someKeys); err == nil || err.Error() != test.want {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "abc", 0}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}} {
		if got := editDistance(test.a, test.b); got != test.want {
			t.Errorf("distance of %q and %q: got %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
