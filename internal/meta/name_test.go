package meta

import (
	"errors"
	"strings"
	"testing"
)

// The texts are those of Apache Kafka 4.4's Topic.validate.
func TestValidateTopicName(t *testing.T) {
	long := strings.Repeat("a", TopicNameBytesMax+1)
	for name, want := range map[string]string{
		"orders": "", "a": "", "...": "", "A-Z_0.9": "", long[1:]: "", "__consumer_offsets": "",
		"":          "Topic name is invalid: the empty string is not allowed",
		".":         "Topic name is invalid: '.' is not allowed",
		"..":        "Topic name is invalid: '..' is not allowed",
		long:        "Topic name is invalid: the length of '" + long + "' is longer than the max allowed length 249",
		"foo bar":   "Topic name is invalid: 'foo bar' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"a/../b":    "Topic name is invalid: 'a/../b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"caf\u00e9": "Topic name is invalid: 'caf\u00e9' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		"a\x00":     "Topic name is invalid: 'a\x00' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
	} {
		err := ValidateTopicName(name)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q is refused: %v", name, err)
		case want != "" && (err == nil || err.Error() != want || !errors.Is(err, ErrTopicName)):
			t.Errorf("%q: got %v, want %s", name, err, want)
		}
	}
}

func TestCollisionKey(t *testing.T) {
	if CollisionKey("a.b") != CollisionKey("a_b") || CollisionKey("a-b") == CollisionKey("a_b") {
		t.Fatal("exactly . and _ collide")
	}
}

func TestInternalTopics(t *testing.T) {
	for _, name := range InternalTopics() {
		if !IsInternalTopic(name) || ValidateTopicName(name) != nil {
			t.Errorf("%s is not an internal topic", name)
		}
	}
	for _, name := range []string{"", "__mine", "orders", "_schemas", "__consumer_offsets2"} {
		if IsInternalTopic(name) {
			t.Errorf("%s is an internal topic", name)
		}
	}
}
