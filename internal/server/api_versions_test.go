package server

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestApiVersionsEveryVersion asks over a real socket and reads the answer with kmsg; a version from the future gets a
// v0 body with UNSUPPORTED_VERSION (KIP-511).
func TestApiVersionsEveryVersion(t *testing.T) {
	s := start(t, Config{})
	for version := int16(0); version <= 6; version++ {
		socket := s.dial()
		req := kmsg.NewPtrApiVersionsRequest()
		req.ClientSoftwareName, req.ClientSoftwareVersion = "go", "1"
		req.SetVersion(version)
		send(t, socket, 7, req)
		body := receive(t, socket, 7)
		resp := kmsg.NewPtrApiVersionsResponse()
		wantCode, wantVersion := int16(0), version
		if version > 5 {
			wantCode, wantVersion = kerr.UnsupportedVersion.Code, 0
		}
		resp.SetVersion(wantVersion)
		if err := resp.ReadFrom(body); err != nil {
			t.Fatalf("v%d: %v", version, err)
		}
		if resp.ErrorCode != wantCode || len(resp.ApiKeys) == 0 {
			t.Errorf("v%d: code %d with %d keys, want code %d", version, resp.ErrorCode, len(resp.ApiKeys), wantCode)
		}
		metadata := slices.IndexFunc(resp.FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
			return f.Name == "metadata.version" && f.MaxVersionLevel == 33
		})
		if (metadata >= 0) != (wantVersion >= 3) || len(resp.FinalizedFeatures) != len(resp.SupportedFeatures) {
			t.Errorf("v%d: the finalized features are %v", version, resp.FinalizedFeatures)
		}
		if again := resp.AppendTo(nil); !bytes.Equal(again, body) {
			t.Errorf("v%d: the answer does not survive a round trip", version)
		}
	}
}

// send writes one request frame.
func send(t *testing.T, socket io.Writer, correlationID int32, req kmsg.Request) {
	t.Helper()
	if _, err := socket.Write(frameOf(correlationID, req)); err != nil {
		t.Fatalf("send: %v", err)
	}
}

func frameOf(correlationID int32, req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, req, correlationID)
}

// receive reads one answer and checks whose it is; it returns what follows the correlation id.
func receive(t *testing.T, socket io.Reader, correlationID int32) []byte {
	t.Helper()
	var size [4]byte
	if _, err := io.ReadFull(socket, size[:]); err != nil {
		t.Fatalf("receive: %v", err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(socket, body); err != nil {
		t.Fatalf("receive: %v", err)
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != correlationID {
		t.Fatalf("answer to request %d came, want %d", got, correlationID)
	}
	return body[4:]
}
