package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// propertiesBytesMax bounds a configuration file: a larger one is a mistake.
const propertiesBytesMax = 1 << 20

// property is one `key=value` of a Java properties file, with the line it starts on.
type property struct {
	key, value string
	line       int // from 1
}

// readProperties reads a properties file. Its errors name the file.
func readProperties(name string) ([]property, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, usageError{err}
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, propertiesBytesMax+1))
	if err != nil {
		return nil, usageError{err}
	}
	if len(data) > propertiesBytesMax {
		return nil, usageError{fmt.Errorf("%s: larger than %d bytes; is it a properties file?", name, propertiesBytesMax)}
	}
	properties, err := parseProperties(string(data))
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", name, err)}
	}
	return properties, nil
}

// parseProperties reads Java's format: comments from # or !, keys ended by =, : or white space, backslash escapes, and
// lines continued by a backslash at their end. A key that stands twice is kept twice; the later one wins, as in Java.
func parseProperties(data string) ([]property, error) {
	if !utf8.ValidString(data) {
		return nil, errors.New("not UTF-8 text; is it a properties file?")
	}
	var out []property
	lines := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(data), "\n")
	for i := 0; i < len(lines); i++ {
		start := i + 1
		line := strings.TrimLeft(lines[i], " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for continued(line) {
			line = line[:len(line)-1]
			if i+1 == len(lines) {
				break
			}
			i++
			line += strings.TrimLeft(lines[i], " \t\f")
		}
		key, value, err := splitProperty(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", start, err)
		}
		out = append(out, property{key: key, value: value, line: start})
	}
	return out, nil
}

// continued tells whether a line ends in an odd number of backslashes.
func continued(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

func splitProperty(line string) (key, value string, err error) {
	end := len(line)
	for i := 0; i < len(line); i++ {
		if line[i] == '\\' {
			i++
			continue
		}
		if strings.IndexByte("=: \t\f", line[i]) >= 0 {
			end = i
			break
		}
	}
	rest := strings.TrimLeft(line[end:], " \t\f")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = strings.TrimLeft(rest[1:], " \t\f")
	}
	if key, err = unescapeProperty(line[:end]); err != nil {
		return "", "", err
	}
	if key == "" {
		return "", "", fmt.Errorf("no key before %q; want key=value", line)
	}
	value, err = unescapeProperty(rest)
	return key, strings.TrimRight(value, " \t\f"), err
}

func unescapeProperty(s string) (string, error) {
	if !strings.Contains(s, `\`) {
		return s, nil
	}
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		i++
		switch s[i] {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			if i+4 >= len(s) {
				return "", fmt.Errorf(`%q: \u wants four hexadecimal digits`, s)
			}
			code, err := strconv.ParseUint(s[i+1:i+5], 16, 32)
			if err != nil {
				return "", fmt.Errorf(`%q: \u wants four hexadecimal digits`, s)
			}
			out.WriteRune(rune(code))
			i += 4
		default:
			out.WriteByte(s[i])
		}
	}
	return out.String(), nil
}
