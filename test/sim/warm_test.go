package sim

import (
	"runtime"
	"testing"
	"testing/cryptotest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/leaderd/leaderd/test/sim/exact"
)

// warmUp has the process do what it does once for all, such as the tables of message
// types, before its first seed: else that seed would draw random numbers for it, and
// do something else than behind others.
func warmUp(t *testing.T) {
	t.Helper()
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		m := mt.New().Interface()
		data, err := proto.Marshal(m)
		if err != nil {
			t.Fatalf("warm up %s: %v", mt.Descriptor().FullName(), err)
		}
		if err := proto.Unmarshal(data, m); err != nil {
			t.Fatalf("warm up %s: %v", mt.Descriptor().FullName(), err)
		}
		return true
	})
	cryptotest.SetGlobalRandom(t, 0)
	inBubble(t, func(_ *testing.T, w *world) {
		exact.Begin(0)
		c := newChaos(w, 0, nil)
		c.live(warmLength)
		for _, a := range acts { // each once, in any case
			a.do(c)
			w.pass(time.Second)
		}
		c.settle()
	})
}

const warmLength = 5 * time.Minute

// begin has a seed of an exact program begin as all others: what came before is gone.
// Pools keep things over one collection.
func begin() {
	if exact.On {
		runtime.GC()
		runtime.GC()
	}
}
