package wire

import (
	"encoding/binary"
	"fmt"
)

// Header is the head of a request frame.
type Header struct {
	Key, Version  int16
	CorrelationID int32
	// ClientID is what the client calls itself; it aliases the frame. Null and empty are both nil.
	ClientID []byte
}

// headerFixedBytes is the length of the fields that every header begins with: key, version, correlation id.
const headerFixedBytes = 8

// PeekHeader reads the fixed fields of a header, key, version and correlation id, from the first 8 bytes of a frame;
// ok is false if there are fewer.
func PeekHeader(frame []byte) (h Header, ok bool) {
	if len(frame) < headerFixedBytes {
		return Header{}, false
	}
	return Header{
		Key:           int16(binary.BigEndian.Uint16(frame)),
		Version:       int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
	}, true
}

// ParseHeader splits a frame (without its length field) into header and body, both aliasing it. Flexible versions have
// header version 2, whose tagged fields are skipped; the client id is a plain nullable string in both. For a key or
// version outside the table it returns the fixed fields and a nil body, and api is nil or does not support the
// version: the caller decides what to answer. Errors wrap ErrMalformed.
func ParseHeader(frame []byte) (h Header, api *API, body []byte, err error) {
	h, ok := PeekHeader(frame)
	if !ok {
		return h, nil, nil, fmt.Errorf("a frame of %d bytes has no header: %w", len(frame), ErrMalformed)
	}
	api = Lookup(h.Key)
	if api == nil || !api.Supports(h.Version) {
		return h, api, nil, nil
	}
	w := walker{in: frame[headerFixedBytes:], tags: tagsFree}
	client := text().null()
	n, err := w.length(&client, 1)
	if err != nil {
		return h, api, nil, fmt.Errorf("client id: %w", err)
	}
	if n > 0 {
		h.ClientID = w.in[:n:n]
	}
	w.in = w.in[n:]
	if api.IsFlexible(h.Version) {
		if err := w.tagged(); err != nil {
			return h, api, nil, fmt.Errorf("header: %w", err)
		}
	}
	return h, api, w.in, nil
}

// AppendResponseHeader appends the head of a response: the correlation id and, in flexible versions, an empty list of
// tagged fields. ApiVersions always has the first form, so that a client which guessed too high can read the answer
// (KIP-511).
func AppendResponseHeader(dst []byte, api *API, version int16, correlationID int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if api.IsFlexible(version) && api.Key != KeyApiVersions {
		dst = append(dst, 0)
	}
	return dst
}
