package meta

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// BrokerID identifies a broker of the cluster. Zero is legal; NoBroker stands for none.
type BrokerID int32

// NoBroker is the id that stands for "no broker": a partition without a leader, a cluster without a controller.
const NoBroker BrokerID = -1

// String is the id in decimal.
func (id BrokerID) String() string { return strconv.Itoa(int(id)) }

// Epoch is a leader epoch (KIP-101, E-7): it rises with every election of a partition and never falls.
type Epoch int32

// NoEpoch is the sentinel of the protocol and of old formats for an unknown epoch (E-41).
const NoEpoch Epoch = -1

// ErrBadID is returned by ParseTopicID and ParseDirectoryID when the text is not 22 characters of base64url.
var ErrBadID = errors.New("id is not 22 characters of unpadded base64url")

// TopicID identifies one life of a topic: a topic that is deleted and created again has another id. Its text form is
// Kafka's, 22 characters of unpadded base64url.
type TopicID [16]byte

// NewTopicID draws a random (version 4) id from r, normally crypto/rand.Reader. It never starts with "-", so that a
// command line takes it for an argument.
func NewTopicID(r io.Reader) (TopicID, error) {
	id, err := newID(r)
	return TopicID(id), err
}

// ParseTopicID reads the text form; it returns ErrBadID, wrapped with the text, for anything else.
func ParseTopicID(s string) (TopicID, error) {
	id, err := parseID(s)
	return TopicID(id), err
}

// IsZero tells whether the id is the protocol's "no id".
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String is the 22-character text form.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// MarshalText is String, for JSON.
func (id TopicID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseTopicID, for JSON.
func (id *TopicID) UnmarshalText(text []byte) error {
	parsed, err := ParseTopicID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// DirectoryID identifies a data directory (`directory.id` in meta.properties), so that a broker which comes back with
// an empty disk is not taken for its predecessor (U-58, U-63).
type DirectoryID [16]byte

// NewDirectoryID draws a random id from r.
func NewDirectoryID(r io.Reader) (DirectoryID, error) {
	id, err := newID(r)
	return DirectoryID(id), err
}

// ParseDirectoryID reads the text form; it returns ErrBadID, wrapped with the text, for anything else.
func ParseDirectoryID(s string) (DirectoryID, error) {
	id, err := parseID(s)
	return DirectoryID(id), err
}

// IsZero tells whether the id is unset.
func (id DirectoryID) IsZero() bool { return id == DirectoryID{} }

// String is the 22-character text form.
func (id DirectoryID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// MarshalText is String, for JSON.
func (id DirectoryID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is ParseDirectoryID, for JSON.
func (id *DirectoryID) UnmarshalText(text []byte) error {
	parsed, err := ParseDirectoryID(string(text))
	if err == nil {
		*id = parsed
	}
	return err
}

// TopicIDPartition names one partition of one life of a topic.
type TopicIDPartition struct {
	Topic     TopicID
	Partition int32
}

// String is the id and the partition joined by a hyphen, for logs.
func (tp TopicIDPartition) String() string {
	return tp.Topic.String() + "-" + strconv.Itoa(int(tp.Partition))
}

func newID(r io.Reader) ([16]byte, error) {
	var id [16]byte
	for {
		if _, err := io.ReadFull(r, id[:]); err != nil {
			return id, fmt.Errorf("draw id: %w", err)
		}
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		// "-" is sextet 62; the first character shows the top six bits.
		if id[0]>>2 != 62 {
			return id, nil
		}
	}
}

func parseID(s string) ([16]byte, error) {
	var id [16]byte
	if len(s) != base64.RawURLEncoding.EncodedLen(len(id)) {
		return id, fmt.Errorf("%q: %w", s, ErrBadID)
	}
	if _, err := base64.RawURLEncoding.Strict().Decode(id[:], []byte(s)); err != nil {
		return [16]byte{}, fmt.Errorf("%q: %w", s, ErrBadID)
	}
	return id, nil
}
