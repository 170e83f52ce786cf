package wire

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// fill sets every field of a kmsg value at random, so that encodings differ in every count and length.
func fill(r *rand.Rand, v reflect.Value, depth int) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 1)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(r.Uint64()) >> (64 - v.Type().Bits()))
	case reflect.String:
		v.SetString("topic-with-a-long-name"[:1+r.IntN(21)])
	case reflect.Array:
		for i := range v.Len() {
			v.Index(i).SetUint(r.Uint64() & 0xff)
		}
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), depth)
		}
	case reflect.Slice:
		n := r.IntN(4)
		if v.Type().Elem().Kind() == reflect.Uint8 {
			n = r.IntN(300)
		}
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		for i := range n {
			if v.Type().Elem().Kind() == reflect.Uint8 {
				v.Index(i).SetUint(r.Uint64() & 0xff)
				continue
			}
			fill(r, v.Index(i), depth+1)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type().Field(i).Name != "Version" {
				fill(r, v.Field(i), depth)
			}
		}
	default:
		panic("kmsg has fields of kind " + v.Kind().String())
	}
}

// TestCheckWalksEveryVersion encodes random requests with kmsg and demands that the walk of the table ends exactly at
// their end, for every key and version.
func TestCheckWalksEveryVersion(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range apis {
		api := &apis[i]
		for version := api.Min; version <= api.Max; version++ {
			for range 200 {
				req := kmsg.RequestForKey(api.Key)
				fill(r, reflect.ValueOf(req).Elem(), 0)
				req.SetVersion(version)
				if req.IsFlexible() != api.IsFlexible(version) {
					t.Fatalf("%s v%d: flexible is %v in kmsg", api.Name, version, req.IsFlexible())
				}
				body := req.AppendTo(nil)
				w := walker{in: body, version: version, flexible: api.IsFlexible(version), tags: 1 << 20}
				if err := w.object(api.fields); err != nil {
					t.Fatalf("%s v%d: %v\n%+v", api.Name, version, err, req)
				}
				if len(w.in) != 0 {
					t.Fatalf("%s v%d: %d of %d bytes left\n%+v", api.Name, version, len(w.in), len(body), req)
				}
				if n := len(body); n > 0 {
					if err := api.Check(version, body[:r.IntN(n)]); err != nil && !errors.Is(err, ErrMalformed) {
						t.Fatalf("%s v%d cut short: %v", api.Name, version, err)
					}
				}
			}
		}
	}
}

// TestTableAgreesWithKmsg checks names and last versions.
func TestTableAgreesWithKmsg(t *testing.T) {
	for i := range apis {
		api := &apis[i]
		name := kmsg.NameForKey(api.Key)
		if name == "AlterPartitionAssignments" {
			name = "AlterPartitionReassignments" // as Kafka calls it
		}
		if !strings.EqualFold(name, api.Name) {
			t.Errorf("key %d is %s in the table, %s in kmsg", api.Key, api.Name, name)
		}
		if req := kmsg.RequestForKey(api.Key); req.MaxVersion() < api.Max {
			t.Errorf("%s: the table goes to version %d, kmsg to %d", api.Name, api.Max, req.MaxVersion())
		}
		if api.fields == nil {
			t.Errorf("%s has no fields", api.Name)
		}
	}
}
