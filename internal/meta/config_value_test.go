package meta

import "testing"

// The expected texts are those of Apache Kafka 4.4 (U-122, U-125).
func TestParseConfigValue(t *testing.T) {
	tests := []struct {
		key       ConfigKey
		value     string
		want, err string
	}{
		{ConfigKey{Name: "b", Type: BoolType}, " TRUE ", "true", ""},
		{ConfigKey{Name: "b", Type: BoolType}, "yes", "", "Invalid value yes for configuration b: Expected value to be either true or false"},
		{ConfigKey{Name: "i", Type: IntType}, " 5 ", "5", ""},
		{ConfigKey{Name: "i", Type: IntType}, "3000000000", "", "Invalid value 3000000000 for configuration i: Not a number of type INT"},
		{ConfigKey{Name: "s", Type: ShortType}, "40000", "", "Invalid value 40000 for configuration s: Not a number of type SHORT"},
		{ConfigKey{Name: "l", Type: LongType}, "", "", "Invalid value  for configuration l: Not a number of type LONG"},
		{ConfigKey{Name: "l", Type: LongType}, "1.5", "", "Invalid value 1.5 for configuration l: Not a number of type LONG"},
		{ConfigKey{Name: "l", Type: LongType, Valid: AtLeast(-1)}, "-2", "", "Invalid value -2 for configuration l: Value must be at least -1"},
		{ConfigKey{Name: "l", Type: LongType, Valid: Between(1, 17)}, "18", "", "Invalid value 18 for configuration l: Value must be no more than 17"},
		{ConfigKey{Name: "g", Type: IntType, Valid: BetweenOr(1, 9, -1)}, "0", "", "Invalid value 0 for configuration g: Value must be between 1 and 9 or equal to -1"},
		{ConfigKey{Name: "g", Type: IntType, Valid: BetweenOr(1, 9, -1)}, "-1", "-1", ""},
		{ConfigKey{Name: "d", Type: DoubleType, Valid: Between(0, 1)}, "2", "", "Invalid value 2.0 for configuration d: Value must be no more than 1"},
		{ConfigKey{Name: "d", Type: DoubleType, Valid: Between(0, 1)}, ".5", "0.5", ""},
		{ConfigKey{Name: "d", Type: DoubleType, Valid: Between(0, 1)}, "NaN", "", "Invalid value NaN for configuration d: Value must be at least 0"},
		{ConfigKey{Name: "d", Type: DoubleType}, "1.7976931348623157E308", "1.7976931348623157E308", ""},
		{ConfigKey{Name: "d", Type: DoubleType}, "10000000", "1.0E7", ""},
		{ConfigKey{Name: "w", Type: StringType, Valid: OneOf("gzip", "lz4")}, "zip", "", "Invalid value zip for configuration w: String must be one of: gzip, lz4"},
		{ConfigKey{Name: "w", Type: StringType, Valid: OneOfFold("UP", "DOWN")}, "up", "up", ""},
		{ConfigKey{Name: "p", Type: ListType, Valid: ListOf("compact", "delete")}, "compact , delete", "compact,delete", ""},
		{ConfigKey{Name: "p", Type: ListType, Valid: ListOf("compact", "delete")}, "", "", ""},
		{ConfigKey{Name: "p", Type: ListType, Valid: ListOf("compact", "delete")}, "delete,,compact", "", "Configuration 'p' values must not be empty."},
		{ConfigKey{Name: "p", Type: ListType, Valid: ListOf("compact", "delete")}, "delete,foo", "", "Invalid value foo for configuration p: String must be one of: compact, delete"},
		{ConfigKey{Name: "p", Type: ListType, Valid: ListOf("compact", "delete")}, "delete,delete", "", "Configuration 'p' values must not be duplicated."},
		{ConfigKey{Name: "p", Type: ListType, Valid: ListOf("compact", "delete"), Topic: true}, "delete,delete", "delete", ""},
		{ConfigKey{Name: "t", Type: ListType, Valid: ThrottledReplicas()}, "0:1, 1:2", "0:1,1:2", ""},
		{ConfigKey{Name: "t", Type: ListType, Valid: ThrottledReplicas()}, "*", "*", ""},
		{ConfigKey{Name: "t", Type: ListType, Valid: ThrottledReplicas()}, "foo", "", "Invalid value [foo] for configuration t: t must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],..."},
	}
	for _, test := range tests {
		got, err := test.key.Parse(test.value)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if got != test.want || message != test.err {
			t.Errorf("%s=%q: got %q, error %q; want %q, error %q", test.key.Name, test.value, got, message, test.want, test.err)
		}
	}
}
