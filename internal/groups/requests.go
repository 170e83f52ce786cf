package groups

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/coordinator"
)

// event is a method of the machine with its request.
type event = func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects

// do brings an event to the machine of a group and waits for the answer.
func do[T any](ctx context.Context, c *Coordinator, group string, e event) (answer T, code int16) {
	r, err := c.runnerOf(group)
	if err != nil {
		return answer, codeOf(err)
	}
	value, err := r.Do(ctx, e)
	if err != nil {
		return answer, codeOf(err)
	}
	return value.(T), 0
}

// Join answers a JoinGroup request (key 11). It waits for the group's other members.
func (c *Coordinator) Join(ctx context.Context, client Client, req *kmsg.JoinGroupRequest) *kmsg.JoinGroupResponse {
	id := newMemberID()
	resp, code := do[*kmsg.JoinGroupResponse](ctx, c, req.Group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.Join(call, client, id, req, now)
	})
	if code != 0 {
		resp = newJoinResponse(req.MemberID)
		resp.ErrorCode = code
	}
	return resp
}

// Sync answers a SyncGroup request (key 14). It waits for the leader's assignment.
func (c *Coordinator) Sync(ctx context.Context, req *kmsg.SyncGroupRequest) *kmsg.SyncGroupResponse {
	resp, code := do[*kmsg.SyncGroupResponse](ctx, c, req.Group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.Sync(call, req, now)
	})
	if code != 0 {
		resp = syncRefusal(code)
	}
	return resp
}

// Heartbeat answers a Heartbeat request (key 12).
func (c *Coordinator) Heartbeat(ctx context.Context, req *kmsg.HeartbeatRequest) *kmsg.HeartbeatResponse {
	resp, code := do[*kmsg.HeartbeatResponse](ctx, c, req.Group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.Heartbeat(call, req, now)
	})
	if code != 0 {
		resp = kmsg.NewPtrHeartbeatResponse()
		resp.ErrorCode = code
	}
	return resp
}

// Leave answers a LeaveGroup request (key 13).
func (c *Coordinator) Leave(ctx context.Context, req *kmsg.LeaveGroupRequest) *kmsg.LeaveGroupResponse {
	resp, code := do[*kmsg.LeaveGroupResponse](ctx, c, req.Group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.Leave(call, req, now)
	})
	if code != 0 {
		resp = kmsg.NewPtrLeaveGroupResponse()
		resp.ErrorCode = code
	}
	return resp
}

// Commit answers an OffsetCommit request (key 8) about partitions that exist; it returns when the offsets are committed.
// The answer has the partitions in the request's order.
func (c *Coordinator) Commit(ctx context.Context, req *kmsg.OffsetCommitRequest) *kmsg.OffsetCommitResponse {
	resp, code := do[*kmsg.OffsetCommitResponse](ctx, c, req.Group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.Commit(call, req, now)
	})
	if code != 0 {
		resp = commitResponse(req, code)
	}
	return resp
}

// Fetch answers one group of an OffsetFetch request (key 9); nil topics are all. ErrorCode tells a group that could not be
// read from one without offsets (U-115).
func (c *Coordinator) Fetch(ctx context.Context, req *kmsg.OffsetFetchRequestGroup) *kmsg.OffsetFetchResponseGroup {
	resp, code := do[*kmsg.OffsetFetchResponseGroup](ctx, c, req.Group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.Fetch(call, req, now)
	})
	if code != 0 {
		refusal := kmsg.NewOffsetFetchResponseGroup()
		refusal.Group, refusal.ErrorCode = req.Group, code
		resp = &refusal
	}
	return resp
}

// DeleteOffsets answers an OffsetDelete request (key 47) about partitions that exist.
func (c *Coordinator) DeleteOffsets(ctx context.Context, req *kmsg.OffsetDeleteRequest) *kmsg.OffsetDeleteResponse {
	resp, code := do[*kmsg.OffsetDeleteResponse](ctx, c, req.Group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.DeleteOffsets(call, req, now)
	})
	if code != 0 {
		resp = kmsg.NewPtrOffsetDeleteResponse()
		resp.ErrorCode = code
	}
	return resp
}

// List answers a ListGroups request (key 16) for the groups coordinated here, sorted. With a code there is no list: a part
// of it would look like the whole.
func (c *Coordinator) List(ctx context.Context, states, types []string) (all []kmsg.ListGroupsResponseGroup, code int16) {
	runners, err := c.runners()
	if err != nil {
		return nil, codeOf(err)
	}
	for _, r := range runners {
		value, err := r.Do(ctx, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
			return m.List(call, states, types, now)
		})
		if err != nil {
			return nil, codeOf(err)
		}
		all = append(all, value.([]kmsg.ListGroupsResponseGroup)...)
	}
	slices.SortFunc(all, func(a, b kmsg.ListGroupsResponseGroup) int { return cmp.Compare(a.Group, b.Group) })
	return all, 0
}

// Describe answers one group of a DescribeGroups request (key 15) of a version.
func (c *Coordinator) Describe(ctx context.Context, group string, version int16) *kmsg.DescribeGroupsResponseGroup {
	resp, code := do[*kmsg.DescribeGroupsResponseGroup](ctx, c, group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.Describe(call, group, version, now)
	})
	if code != 0 {
		refusal := kmsg.NewDescribeGroupsResponseGroup()
		refusal.Group, refusal.ErrorCode = group, code
		resp = &refusal
	}
	return resp
}

// Delete answers one group of a DeleteGroups request (key 42).
func (c *Coordinator) Delete(ctx context.Context, group string) *kmsg.DeleteGroupsResponseGroup {
	resp, code := do[*kmsg.DeleteGroupsResponseGroup](ctx, c, group, func(m *Machine, call coordinator.Call, now time.Time) coordinator.Effects {
		return m.Delete(call, group, now)
	})
	if code != 0 {
		resp = deleteResponse(group, code)
	}
	return resp
}
