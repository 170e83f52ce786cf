package server

import (
	"context"
	"fmt"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// apply acts on a statement of the controller (D5). What the broker refuses is an answer; a statement that cannot be read
// costs the sender its connection.
func (s *Server) apply(ctx context.Context, body []byte) ([]byte, error) {
	a, err := meta.ParseApply(body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, wire.ErrMalformed)
	}
	answer, err := s.config.Apply(ctx, a)
	if err != nil {
		answer = meta.ApplyAnswer{Refusal: err.Error()}
	}
	return meta.AppendApplyAnswer(nil, &answer), nil
}
