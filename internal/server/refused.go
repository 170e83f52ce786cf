package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tidemark-io/tidemark/internal/controller"
)

// refusedResource is why one thing of an admin request was refused, in the protocol's words; the zero value says that
// it was not.
type refusedResource struct {
	code    int16
	message string
}

// text is the message, nil for none.
func (r refusedResource) text() *string {
	if r.message == "" {
		return nil
	}
	return &r.message
}

func invalidRequest(message string) refusedResource {
	return refusedResource{kerr.InvalidRequest.Code, message}
}

func invalidConfig(message string) refusedResource {
	return refusedResource{kerr.InvalidConfig.Code, message}
}

// waitFor waits until this broker's Image shows what the results wrote.
func (s *Server) waitFor(ctx context.Context, results []controller.TopicResult) error {
	var revision int64
	for i := range results {
		revision = max(revision, results[i].Revision)
	}
	if revision == 0 {
		return nil
	}
	return s.config.WaitImage(ctx, revision)
}

// refusedOf is the refusal that an error means; none for nil.
func refusedOf(err error) refusedResource {
	if err == nil {
		return refusedResource{}
	}
	return refusedResource{adminCodeOf(err), err.Error()}
}
