package broker

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestHealth proves the console of a running broker.
func TestHealth(t *testing.T) {
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	b.create("seen", nil)
	b.produceOne("seen", "x")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for path, wants := range map[string][]string{
		"/livez":    {"alive"},
		"/startupz": {"started", "data directory", "registry", "logs", "registration", "leadership"},
		"/readyz":   {"ready\n", "ok    registry", "ok    controller", "ok    disk", "ok    partitions"},
		"/metrics": {
			`kafka_log_log_size{partition="0",topic="seen"}`, `kafka_server_brokertopicmetrics_messagesin_total{topic="seen"} 1`,
			"kafka_server_brokertopicmetrics_messagesin_total 1", "kafka_server_replicamanager_leadercount 1",
			"kafka_controller_kafkacontroller_activecontrollercount 1", "kafka_server_kafkaserver_brokerstate 3", "process_resident_memory_bytes",
		},
	} {
		response, err := client.Get("http://" + b.AdminAddrs()[0].String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if err := response.Body.Close(); err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if response.StatusCode != 200 || !strings.Contains(string(body), want) {
				t.Errorf("%s: %d, without %q", path, response.StatusCode, want)
			}
		}
	}
}

// TestMetricsPage holds docs/operate/metrics.md against what a broker serves.
func TestMetricsPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	b := start(t, filepath.Join(t.TempDir(), "data"), nil)
	b.create("seen", nil)
	families, err := b.gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	served := make(map[string]bool)
	for _, family := range families {
		served[family.GetName()] = true
	}
	for _, name := range regexp.MustCompile("`((kafka|tidemark)_[a-z_]+[a-z])`").FindAllStringSubmatch(string(page), -1) {
		if !served[name[1]] {
			t.Errorf("%s is on the page and is not served", name[1])
		}
	}
}
