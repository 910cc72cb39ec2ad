package redisstreams

import (
	"errors"
	"testing"
	"time"
)

func handFlights(t *testing.T) (f *flights, deliver func() *flight) {
	t.Helper()
	f = newFlights(2, newOutcomes(), func() {}) // the test is the worker
	return f, func() *flight {
		t.Helper()
		page := make([]flight, 1)
		page[0].id = "1-0"
		page[0].Init(t.Context(), time.Time{})
		f.add(page)
		return f.next(true)
	}
}

// A parked message may come due and be handed out again before the member has seen the
// answer to its park: it is a delivery like any other, and what is told of the first one
// no longer touches it.
func TestAMessageHandedOutAnewIsStarted(t *testing.T) {
	for name, end := range map[string]func(f *flights, fl *flight) []settlement{
		"parked": func(f *flights, fl *flight) []settlement {
			f.finish(fl, settlement{fl: fl}, false)
			return f.outcomes.take()
		},
		"lost": func(f *flights, fl *flight) []settlement {
			f.lose([]string{fl.id}, errors.New("taken"))
			return []settlement{{fl: fl}}
		},
	} {
		f, deliver := handFlights(t)
		first := deliver()
		told := end(f, first)
		second := deliver()
		if second == nil || second == first {
			t.Fatalf("%s: the second delivery was not started", name)
		}
		if acks, parks := f.sort(told); len(acks)+len(parks) != 0 {
			t.Errorf("%s: the server is told of a delivery that is over", name)
		}
		if f.drop(told); !f.has("1-0") {
			t.Errorf("%s: the second delivery was forgotten with the first", name)
		}
		f.finish(second, settlement{fl: second, ack: true}, false)
		if acks, _ := f.sort([]settlement{{fl: second, ack: true}}); len(acks) != 1 {
			t.Errorf("%s: the outcome of the second delivery is not told", name)
		}
	}
}

// While its callback runs a message is not started twice.
func TestAMessageInHandIsNotStartedTwice(t *testing.T) {
	_, deliver := handFlights(t)
	deliver()
	if again := deliver(); again != nil {
		t.Error("it was started again")
	}
}
