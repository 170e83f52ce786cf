package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	formatText = "text"
	formatJSON = "json"
)

// printJSON writes one JSON document and a newline, without escaping HTML characters.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// printTable writes rows aligned in columns; the first row is the heading.
func printTable(w io.Writer, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// text is a byte string as JSON shows it: a string if it is UTF-8, else {"base64": …}; nil is null.
type text []byte

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	switch {
	case t == nil:
		return []byte("null"), nil
	case utf8.Valid(t):
		var out strings.Builder
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(string(t)); err != nil {
			return nil, err
		}
		return []byte(strings.TrimSuffix(out.String(), "\n")), nil
	default:
		return json.Marshal(map[string]string{"base64": base64.StdEncoding.EncodeToString(t)})
	}
}

// isTerminal tells whether w is a terminal: progress is shown on one only.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// hideDefaults keeps the help from showing values that only mean "not given".
func hideDefaults(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		flag := cmd.Flags().Lookup(name)
		flag.DefValue = "0"
		if flag.Value.Type() == "int32Slice" {
			flag.DefValue = ""
		}
	}
}

// counted is a number and the word for it.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	if unit == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", value, units[unit])
}
