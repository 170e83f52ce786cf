package suites

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const librdkafkaTestList = `
_TEST_DECL(0001_multiobj);
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0000_unittests,
          TEST_F_LOCAL,
          _THRES(.ucpu = 100.0)),
    _TEST(0001_multiobj, 0),
    _TEST(0028_long_topicnames, TEST_F_KNOWN_ISSUE, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0045_subscribe_update, 0, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0045_subscribe_update_topic_remove,
          0,
          .scenario = "noautocreate"),
    _TEST(0045_subscribe_many_updates, 0),
    _TEST(0055_producer_latency, TEST_F_KNOWN_ISSUE_WIN32),
    _TEST(0081_admin, 0, TEST_BRKVER(0, 10, 2, 0)),
    _TEST(0103_transactions, 0, .scenario = "default,ak23"),
    _TEST(0150_telemetry_mock, 0),
    _TEST(0171_share_consumer_consume, 0),
    _TEST(8000_idle, TEST_F_MANUAL),
    {NULL}};
`

const librdkafkaAdminSource = `
static void do_test_Create(const char *what) {
        SUB_TEST_QUICK("%s", what);
}
static void
do_test_Delete(void) {
        if (0) {
                SUB_TEST();
        }
}
static void helper(void) {
}
static void do_test_other(void) {
        SUB_TEST();
}
static void do_test_apis(int cltype) {
        helper();
        do_test_Delete();
        do_test_Create("a");
        do_test_Create("b");
}
int main_0081_admin(int argc, char **argv) {
        do_test_apis(1);
}
`

func writeLibrdkafkaSource(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"test.c": librdkafkaTestList, "0081-admin.c": librdkafkaAdminSource} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestLibrdkafkaPlan reads what to run, and why the rest does not, out of the source.
func TestLibrdkafkaPlan(t *testing.T) {
	dir := writeLibrdkafkaSource(t)
	for _, test := range []struct {
		scenario string
		only     []string
		want     string
	}{
		{"default", nil, "0045_subscribe_update+0045_subscribe_many_updates 0001_multiobj 0055_producer_latency 0081_admin/do_test_Delete 0081_admin/do_test_Create"},
		{"default", []string{"0001", "0081_admin/do_test_C"}, "0001_multiobj 0081_admin/do_test_Create"},
		{"noautocreate", nil, "0045_subscribe_update_topic_remove"},
	} {
		plan, _, err := planLibrdkafka(dir, test.scenario, test.only, map[string]string{"0103_transactions": "why"})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range plan {
			got = append(got, strings.Join(p.tests, "+"))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s %v:\ngot  %s\nwant %s", test.scenario, test.only, strings.Join(got, " "), test.want)
		}
	}
	_, left, err := planLibrdkafka(dir, "default", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, why := range map[string]string{
		"0000_unittests": "not of a broker", "0150_telemetry_mock": "not of a broker", "0028_long_topicnames": "known issue",
		"0045_subscribe_update_topic_remove": "scenario noautocreate", "0171_share_consumer_consume": "share groups", "8000_idle": "by hand",
	} {
		i := slices.IndexFunc(left, func(r Result) bool { return r.Test == name })
		if i < 0 || left[i].Status != Skipped || !strings.Contains(left[i].Detail, why) {
			t.Errorf("%s is not left out because %q: %v", name, why, left)
		}
	}
	if len(left) != 6 {
		t.Errorf("%d tests are left out, want 6: %v", len(left), left)
	}
}

// TestLibrdkafkaPlanOfAnotherSource refuses what it does not understand instead of running less.
func TestLibrdkafkaPlanOfAnotherSource(t *testing.T) {
	for _, source := range []string{"int main(void) {}", "struct test tests[] = { _TEST(multiobj, 0), {NULL}};"} {
		if tests, err := parseLibrdkafkaTests(source); err == nil {
			t.Errorf("%q: got %v", source, tests)
		}
	}
}

// TestLibrdkafkaResult takes the reason of a skip and of a failure from the log.
func TestLibrdkafkaResult(t *testing.T) {
	const log = `[0053_stats                  /  0.000s] WARN: SKIPPING TEST: RapidJSON >=1.1.0 not available
### Test "0081_admin (do_test_Create:12)" failed at 0081-admin.c:1604:do_test_Create() at Mon Nov 30 20:31:05 2026: ###
Test assertion failed: "!err"
`
	ended := map[string]librdkafkaEnd{"0053_stats": {State: "SKIPPED"}, "0081_admin": {State: "FAILED", Duration: 1}, "0001_multiobj": {State: "PASSED"}}
	for _, test := range []struct {
		name   string
		status Status
		detail string
	}{
		{"0053_stats", Skipped, "its own reason: RapidJSON >=1.1.0 not available"},
		{"0081_admin/do_test_Create", Failed, "0081-admin.c:1604:do_test_Create()\nTest assertion failed: \"!err\""},
		{"0001_multiobj", Passed, ""},
		{"0099_lost", Failed, "it ended without a word"},
	} {
		if got := librdkafkaResult(test.name, ended, log); got.Status != test.status || got.Detail != test.detail {
			t.Errorf("%s: got %q %q, want %q %q", test.name, got.Status, got.Detail, test.status, test.detail)
		}
	}
}
