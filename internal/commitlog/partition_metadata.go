package commitlog

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/meta"
)

// partitionMetadataFileName is the file of a partition directory that says which life of the topic it belongs to.
const partitionMetadataFileName = "partition.metadata"

// partitionMetadataBytesMax bounds what is read of a partition.metadata file.
const partitionMetadataBytesMax = 4 << 10

// ErrBadPartitionMetadata is returned when a partition.metadata file does not say version 0 and a topic id. The
// partition is then to be set aside and reported, never deleted, and never stops the broker (U-56).
var ErrBadPartitionMetadata = errors.New("malformed partition.metadata")

// encodePartitionMetadata is the content of a partition.metadata file.
func encodePartitionMetadata(id meta.TopicID) []byte {
	return []byte("version: 0\ntopic_id: " + id.String())
}

// decodePartitionMetadata reads the content of a partition.metadata file. It returns ErrBadPartitionMetadata, wrapped
// with the reason, for anything but the two lines of version 0, and for the zero id.
func decodePartitionMetadata(text []byte) (meta.TopicID, error) {
	lines := bytes.Split(bytes.TrimRight(text, "\r\n"), []byte{'\n'})
	if len(lines) != 2 {
		return meta.TopicID{}, fmt.Errorf("%w: %d lines, want 2", ErrBadPartitionMetadata, len(lines))
	}
	version, found := bytes.CutPrefix(bytes.TrimSpace(lines[0]), []byte("version:"))
	if !found || string(bytes.TrimSpace(version)) != "0" {
		return meta.TopicID{}, fmt.Errorf("%w: %q, want \"version: 0\"", ErrBadPartitionMetadata, clip(lines[0]))
	}
	text, found = bytes.CutPrefix(bytes.TrimSpace(lines[1]), []byte("topic_id:"))
	if !found {
		return meta.TopicID{}, fmt.Errorf("%w: %q, want \"topic_id: <id>\"", ErrBadPartitionMetadata, clip(lines[1]))
	}
	id, err := meta.ParseTopicID(string(bytes.TrimSpace(text)))
	switch {
	case err != nil:
		return meta.TopicID{}, fmt.Errorf("%w: %w", ErrBadPartitionMetadata, err)
	case id.IsZero():
		return meta.TopicID{}, fmt.Errorf("%w: the topic id is zero", ErrBadPartitionMetadata)
	}
	return id, nil
}
