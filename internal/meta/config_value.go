package meta

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Validator says which values of a key's type are right. There is one validator for every API that takes a value
// (U-122), and its words are Kafka's.
type Validator interface {
	// Check returns nil, or an error that names the key, the value and what would be right. The value has the key's
	// type and is in its canonical form.
	Check(name, value string) error
	// String describes the right values, for the reference documentation.
	String() string
}

// InvalidValue is Kafka's refusal of a value.
func InvalidValue(name, value, reason string) error {
	return fmt.Errorf("Invalid value %s for configuration %s: %s", value, name, reason) //nolint:staticcheck // Kafka's words
}

// Parse checks a value as a user writes it and returns its canonical form, the one that descriptions show: trimmed,
// numbers in decimal, booleans in lower case, lists without blanks. The error is Kafka's message (InvalidValue).
func (k *ConfigKey) Parse(value string) (string, error) {
	canonical, err := k.parseType(value)
	if err != nil || k.Valid == nil {
		return canonical, err
	}
	if err := k.Valid.Check(k.Name, canonical); err != nil {
		return "", err
	}
	return canonical, nil
}

func (k *ConfigKey) parseType(value string) (string, error) {
	trimmed := strings.TrimSpace(value)
	switch k.Type {
	case BoolType:
		lower := strings.ToLower(trimmed)
		if lower != "true" && lower != "false" {
			return "", InvalidValue(k.Name, value, "Expected value to be either true or false")
		}
		return lower, nil
	case IntType, ShortType, LongType:
		bits := map[ConfigType]int{IntType: 32, ShortType: 16, LongType: 64}[k.Type]
		n, err := strconv.ParseInt(trimmed, 10, bits)
		if err != nil {
			return "", InvalidValue(k.Name, value, "Not a number of type "+k.Type.String())
		}
		return strconv.FormatInt(n, 10), nil
	case DoubleType:
		f, err := strconv.ParseFloat(trimmed, 64)
		if err != nil {
			return "", InvalidValue(k.Name, value, "Not a number of type "+k.Type.String())
		}
		return formatDouble(f), nil
	case ListType:
		elements := SplitList(trimmed)
		if k.Topic {
			elements = unique(elements)
		}
		return strings.Join(elements, ","), nil
	default:
		return trimmed, nil
	}
}

// SplitList splits a list value at its commas and trims the elements. An empty value is the empty list.
func SplitList(value string) []string {
	value = strings.TrimSpace(value)
	if value == "" {
		return nil
	}
	elements := strings.Split(value, ",")
	for i := range elements {
		elements[i] = strings.TrimSpace(elements[i])
	}
	return elements
}

// unique drops repeated elements, keeping the order: in a topic's lists they mean nothing.
func unique(elements []string) []string {
	var kept []string
	for _, element := range elements {
		if !slices.Contains(kept, element) {
			kept = append(kept, element)
		}
	}
	return kept
}

// formatDouble writes a number as Java does, since clients compare what they set with what is described.
func formatDouble(f float64) string {
	switch abs := math.Abs(f); {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 0):
		return strings.Replace(strconv.FormatFloat(f, 'f', -1, 64), "Inf", "Infinity", 1)
	case abs == 0 || abs >= 1e-3 && abs < 1e7:
		text := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, 64), "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent) // FormatFloat wrote it
	return mantissa + "E" + strconv.Itoa(n)
}

// AtLeast accepts numbers from least up.
func AtLeast(least int64) Validator { return between{least, math.MaxInt64} }

// Between accepts numbers from least to most.
func Between(least, most int64) Validator { return between{least, most} }

type between struct{ least, most int64 }

func (v between) Check(name, value string) error {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return v.judge(name, value, n < v.least, n > v.most)
	}
	f, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return InvalidValue(name, value, "Not a number of type DOUBLE")
	}
	return v.judge(name, value, !(f >= float64(v.least)), f > float64(v.most))
}

func (v between) judge(name, value string, below, above bool) error {
	switch {
	case below:
		return InvalidValue(name, value, "Value must be at least "+strconv.FormatInt(v.least, 10))
	case above:
		return InvalidValue(name, value, "Value must be no more than "+strconv.FormatInt(v.most, 10))
	}
	return nil
}

func (v between) String() string {
	if v.most == math.MaxInt64 {
		return fmt.Sprintf("[%d,...]", v.least)
	}
	return fmt.Sprintf("[%d,...,%d]", v.least, v.most)
}

// BetweenOr accepts numbers from least to most, and one more.
func BetweenOr(least, most, other int64) Validator { return betweenOr{between{least, most}, other} }

type betweenOr struct {
	between
	other int64
}

func (v betweenOr) Check(name, value string) error {
	if value == strconv.FormatInt(v.other, 10) || v.between.Check(name, value) == nil {
		return nil
	}
	return InvalidValue(name, value, fmt.Sprintf("Value must be between %d and %d or equal to %d", v.least, v.most, v.other))
}

func (v betweenOr) String() string { return fmt.Sprintf("%s or %d", v.between, v.other) }

// OneOf accepts the named words.
func OneOf(words ...string) Validator { return oneOf{words} }

type oneOf struct{ words []string }

func (v oneOf) Check(name, value string) error {
	if slices.Contains(v.words, value) {
		return nil
	}
	return InvalidValue(name, value, "String must be one of: "+strings.Join(v.words, ", "))
}

func (v oneOf) String() string { return "[" + strings.Join(v.words, ", ") + "]" }

// OneOfFold accepts the named words in any case.
func OneOfFold(words ...string) Validator { return oneOfFold{words} }

type oneOfFold struct{ words []string }

func (v oneOfFold) Check(name, value string) error {
	if slices.ContainsFunc(v.words, func(w string) bool { return strings.EqualFold(w, value) }) {
		return nil
	}
	return InvalidValue(name, value, "String must be one of (case insensitive): "+strings.Join(v.words, ", "))
}

func (v oneOfFold) String() string { return "(case insensitive) [" + strings.Join(v.words, ", ") + "]" }

// ListOf accepts lists of the named words; the list may be empty.
func ListOf(words ...string) Validator { return listOf{oneOf{words}} }

type listOf struct{ oneOf }

func (v listOf) Check(name, value string) error {
	elements := SplitList(value)
	if len(unique(elements)) < len(elements) {
		return fmt.Errorf("Configuration '%s' values must not be duplicated.", name) //nolint:staticcheck // Kafka's words
	}
	for _, element := range elements {
		if element == "" {
			return fmt.Errorf("Configuration '%s' values must not be empty.", name) //nolint:staticcheck // Kafka's words
		}
		if err := v.oneOf.Check(name, element); err != nil {
			return err
		}
	}
	return nil
}

// NonEmpty accepts any text but the empty one.
func NonEmpty() Validator { return nonEmpty{} }

type nonEmpty struct{}

func (nonEmpty) Check(name, value string) error {
	if value == "" {
		return InvalidValue(name, value, "String must be non-empty")
	}
	return nil
}

func (nonEmpty) String() string { return "non-empty string" }

// ThrottledReplicas accepts "*" and lists of partition:broker.
func ThrottledReplicas() Validator { return throttledReplicas{} }

type throttledReplicas struct{}

func (throttledReplicas) Check(name, value string) error {
	elements := SplitList(value)
	if len(elements) == 0 || slices.Equal(elements, []string{"*"}) {
		return nil
	}
	for _, element := range elements {
		partition, broker, found := strings.Cut(element, ":")
		if !found || !isDigits(partition) || !isDigits(broker) {
			return InvalidValue(name, "["+strings.Join(elements, ", ")+"]", name+
				" must be the literal '*' or a list of replicas in the following format: "+
				"[partitionId]:[brokerId],[partitionId]:[brokerId],...")
		}
	}
	return nil
}

func (throttledReplicas) String() string {
	return "* or [partitionId]:[brokerId],[partitionId]:[brokerId],..."
}

func isDigits(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
