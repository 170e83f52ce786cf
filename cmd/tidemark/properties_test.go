package main

import (
	"reflect"
	"testing"
)

func TestParseProperties(t *testing.T) {
	const file = "# comment\n! another\n\nnode.id=1\n  log.dirs = /a b \nlisteners: PLAINTEXT://:9092\n" +
		"long=one,\\\n     two\\\n,three\nescaped\\=key=\\u0041\\tB\\\\\nempty=\nbare\nnode.id=2\r\nlast=x"
	want := []property{
		{"node.id", "1", 4},
		{"log.dirs", "/a b", 5},
		{"listeners", "PLAINTEXT://:9092", 6},
		{"long", "one,two,three", 7},
		{"escaped=key", "A\tB\\", 10},
		{"empty", "", 11},
		{"bare", "", 12},
		{"node.id", "2", 13},
		{"last", "x", 14},
	}
	got, err := parseProperties(file)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParsePropertiesRefuses(t *testing.T) {
	for file, want := range map[string]string{
		"a=1\n=2":           `line 2: no key before "=2"; want key=value`,
		"a=\\u12":           `line 1: "\\u12": \u wants four hexadecimal digits`,
		"a=\\uzzzz":         `line 1: "\\uzzzz": \u wants four hexadecimal digits`,
		"\xff\xfe binary\n": "not UTF-8 text; is it a properties file?",
	} {
		if _, err := parseProperties(file); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", file, err, want)
		}
	}
}

func FuzzProperties(f *testing.F) {
	f.Add("a=b\\\n c\n#x\nk:v")
	f.Add("\\u0041=\\\\")
	f.Fuzz(func(t *testing.T, file string) {
		properties, err := parseProperties(file)
		if err != nil {
			return
		}
		last := 0
		for _, p := range properties {
			if p.key == "" || p.line <= last {
				t.Fatalf("property %+v after line %d", p, last)
			}
			last = p.line
		}
	})
}
