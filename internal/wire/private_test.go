package wire

import (
	"math/rand/v2"
	"testing"
)

func TestPrivateKeysAreApart(t *testing.T) { // D16
	api := Lookup(KeyApply)
	if api == nil || !api.Private() || !api.Supports(0) || api.Supports(1) || api.IsFlexible(0) {
		t.Errorf("%+v", api)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		key := int16(r.Uint32())
		if api := Lookup(key); api != nil && (api.Key != key || api.Private() != (key >= privateKeyMin)) {
			t.Errorf("key %d: %+v", key, api)
		}
	}
}
