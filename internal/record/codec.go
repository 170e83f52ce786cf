package record

import (
	"fmt"
	"strconv"
)

// Codec is how the records of a batch are compressed: bits 0 to 2 of its attributes.
type Codec uint8

// The codecs of the protocol. 5 to 7 are not assigned.
const (
	None   Codec = 0
	Gzip   Codec = 1
	Snappy Codec = 2
	LZ4    Codec = 3
	Zstd   Codec = 4
)

var codecNames = [...]string{None: "none", Gzip: "gzip", Snappy: "snappy", LZ4: "lz4", Zstd: "zstd"}

// ParseCodec reads a codec's name as compression.type spells it: none, gzip, snappy, lz4 or zstd. It returns ErrCodec,
// wrapped with the name, for any other; the topic values "producer" and "uncompressed" are the caller's to interpret.
func ParseCodec(name string) (Codec, error) {
	for codec, known := range codecNames {
		if known == name {
			return Codec(codec), nil
		}
	}
	return None, fmt.Errorf("%q is not none, gzip, snappy, lz4 or zstd: %w", name, ErrCodec)
}

// Known tells whether the codec is one that exists.
func (c Codec) Known() bool { return int(c) < len(codecNames) }

// String is the codec's name in compression.type, or its number if there is no such codec.
func (c Codec) String() string {
	if c.Known() {
		return codecNames[c]
	}
	return strconv.Itoa(int(c))
}
