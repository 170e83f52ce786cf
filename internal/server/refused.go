package server

import (
	"errors"
	"log/slog"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-io/tidemark/internal/controller"
)

// refusedItem is why one thing of an admin request was refused, in the protocol's words; the zero value says that it
// was not.
type refusedItem struct {
	code    int16
	message string
}

// text is the message, nil for none.
func (r refusedItem) text() *string {
	if r.message == "" {
		return nil
	}
	return &r.message
}

func invalidRequest(message string) refusedItem {
	return refusedItem{kerr.InvalidRequest.Code, message}
}

func invalidConfig(message string) refusedItem {
	return refusedItem{kerr.InvalidConfig.Code, message}
}

// refusedBy is the refusal that an error of controller.Admin means; none for nil. Only a refusal has words for clients.
func (s *Server) refusedBy(err error) refusedItem {
	var refused *controller.Refusal
	switch {
	case err == nil:
		return refusedItem{}
	case errors.As(err, &refused):
		return refusedItem{adminCodeOf(refused.Kind), refused.Message}
	}
	code := adminCodeOf(err)
	if unexpected(code) {
		s.log.Error("an admin request failed", slog.Any("err", err))
	}
	return refusedItem{code: code}
}

// firstMentions returns each name once, in order, with how often it is there: a request may name a thing once only, and
// one that is named more often is answered once.
func firstMentions[T any](things []T, name func(*T) string) (first []*T, times map[string]int) {
	times = make(map[string]int, len(things))
	for i := range things {
		times[name(&things[i])]++
		if times[name(&things[i])] == 1 {
			first = append(first, &things[i])
		}
	}
	return first, times
}
