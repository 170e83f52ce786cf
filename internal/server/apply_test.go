package server

import (
	"context"
	"errors"
	"net"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-io/tidemark/internal/meta"
	"github.com/tidemark-io/tidemark/internal/wire"
)

// brokersAsk sends the body of a statement as another broker does.
func brokersAsk(t *testing.T, s *started, body []byte) (meta.ApplyAnswer, error) {
	t.Helper()
	p := wire.NewPeer(wire.PeerConfig{Dial: func(context.Context) (net.Conn, error) { return s.dial(), nil }, Name: "broker-2"})
	defer p.Close()
	answer, err := p.Call(t.Context(), wire.Lookup(wire.KeyApply), 0, func(dst []byte) []byte { return append(dst, body...) })
	if err != nil {
		return meta.ApplyAnswer{}, err
	}
	defer answer.Release()
	return meta.ParseApplyAnswer(answer.Body)
}

func TestApplyOnTheListenerForBrokers(t *testing.T) { // D5, D16
	statement := &meta.Apply{Controller: 2, ControllerEpoch: 7, Registration: 9, Revision: 11, Topics: []meta.TopicUpdate{{ID: meta.TopicID{1}, Name: "t"}}}
	want, refuse := meta.ApplyAnswer{Holding: []meta.TopicID{{1}}}, error(nil)
	s := start(t, Config{Apply: func(_ context.Context, a *meta.Apply) (meta.ApplyAnswer, error) {
		if !reflect.DeepEqual(a, statement) {
			t.Errorf("heard %+v", a)
		}
		return want, refuse
	}})
	body := meta.AppendApply(nil, statement)
	if got, err := brokersAsk(t, s, body); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("answer %+v, %v", got, err)
	}
	refuse = errors.New("an older controller")
	if got, err := brokersAsk(t, s, body); err != nil || got.Refusal != "an older controller" {
		t.Errorf("answer %+v, %v", got, err)
	}
	if _, err := brokersAsk(t, s, body[:len(body)-1]); !errors.Is(err, wire.ErrPeer) {
		t.Errorf("half a statement: %v", err)
	}
	for _, api := range s.apiKeys() {
		if api.ApiKey == wire.KeyApply {
			t.Error("ApiVersions lists a private request")
		}
	}
	for _, key := range []int16{kmsg.Produce.Int16(), kmsg.Metadata.Int16(), kmsg.CreateTopics.Int16()} {
		if _, served := s.handlerFor(key); served {
			t.Errorf("key %d of clients is served to brokers", key)
		}
	}
}

// A client cannot command a broker.
func TestApplyIsNotForClients(t *testing.T) { // D16
	s := start(t, Config{})
	if _, err := brokersAsk(t, s, meta.AppendApply(nil, &meta.Apply{})); !errors.Is(err, wire.ErrPeer) {
		t.Errorf("%v", err)
	}
}
