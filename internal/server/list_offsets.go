package server

import (
	"context"
	"errors"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/replica"
)

// specialSince is the first version of ListOffsets in which a special timestamp may be asked for.
var specialSince = map[int64]int16{
	replica.Latest:                1,
	replica.Earliest:              1,
	replica.MaxTimestamp:          7,
	replica.EarliestLocal:         8,
	replica.LatestTiered:          9,
	replica.EarliestPendingUpload: 11,
}

// listOffsets finds offsets by time or by special timestamp (key 2). The replica id of the request is not believed:
// whoever asks here is a client and sees what clients may see.
func (s *Server) listOffsets(_ context.Context, _ *client, req *kmsg.ListOffsetsRequest) (kmsg.Response, error) {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	image := s.config.Image()
	repeated := repeatedPartitions(req)
	for i := range req.Topics {
		t := &req.Topics[i]
		topic, topicErr := topicByName(image, t.Topic)
		answer := kmsg.NewListOffsetsResponseTopic()
		answer.Topic = t.Topic
		for j := range t.Partitions {
			p := &t.Partitions[j]
			again, asked := repeated[topicPartition{t.Topic, p.Partition}]
			if asked && !again {
				continue // answered already
			}
			at := kmsg.NewListOffsetsResponseTopicPartition()
			at.Partition, at.Offset, at.Timestamp, at.LeaderEpoch = p.Partition, -1, -1, -1
			switch {
			case again:
				at.ErrorCode = kerr.InvalidRequest.Code
				repeated[topicPartition{t.Topic, p.Partition}] = false
			case p.Timestamp < 0 && !specialServed(p.Timestamp, req.Version):
				at.ErrorCode = kerr.UnsupportedVersion.Code
			case topicErr != nil:
				at.ErrorCode = codeOf(topicErr)
			default:
				found, err := s.listOffset(topic, p, replica.Isolation(req.IsolationLevel))
				if err != nil {
					at.ErrorCode = listOffsetsCode(err, req.Version)
					if unexpected(at.ErrorCode) {
						s.log.Error("list offsets failed", slog.String("topic", t.Topic), slog.Int("partition", int(p.Partition)), slog.Any("err", err))
					}
					break
				}
				at.Offset, at.Timestamp, at.LeaderEpoch = found.Offset, found.Timestamp, int32(found.Epoch)
			}
			answer.Partitions = append(answer.Partitions, at)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	return resp, nil
}

func specialServed(timestamp int64, version int16) bool {
	since, known := specialSince[timestamp]
	return known && version >= since
}

func (s *Server) listOffset(topic *meta.Topic, p *kmsg.ListOffsetsRequestTopicPartition, isolation replica.Isolation) (replica.ListedOffset, error) {
	r, err := s.replicaOf(topic, p.Partition)
	if err != nil {
		return replica.ListedOffset{}, err
	}
	return r.ListOffset(p.Timestamp, isolation, meta.Epoch(p.CurrentLeaderEpoch))
}

// listOffsetsCode is codeOf, in words that the version knows: OFFSET_NOT_AVAILABLE came with version 5.
func listOffsetsCode(err error, version int16) int16 {
	if version < 5 && errors.Is(err, replica.ErrOffsetNotAvailable) {
		return kerr.LeaderNotAvailable.Code
	}
	return codeOf(err)
}

// topicPartition is a partition as old requests name it.
type topicPartition struct {
	topic     string
	partition int32
}

// repeatedPartitions finds the partitions that come more than once; each is refused, once.
func repeatedPartitions(req *kmsg.ListOffsetsRequest) map[topicPartition]bool {
	seen, repeated := make(map[topicPartition]bool), make(map[topicPartition]bool)
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			key := topicPartition{req.Topics[i].Topic, req.Topics[i].Partitions[j].Partition}
			if seen[key] {
				repeated[key] = true
			}
			seen[key] = true
		}
	}
	return repeated
}
