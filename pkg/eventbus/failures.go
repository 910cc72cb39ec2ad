package eventbus

import (
	"errors"
	"sync"
)

// failure is what a dead letter that could not be stored would have said.
type failure struct {
	attempts int
	reason   string
	err      error
}

// lastFailures remembers failures until their dead letters are stored, so that the
// letter tells the true last error even if the store was down for a while. It is a
// convenience: another member does not have it, and it is bounded.
type lastFailures struct {
	mu sync.Mutex
	m  map[string]failure
}

const maxRemembered = 4096

func (l *lastFailures) remember(key string, f failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string]failure{}
	}
	if _, known := l.m[key]; known || len(l.m) < maxRemembered {
		l.m[key] = f
	}
}

func (l *lastFailures) of(key string, attempts int) failure {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f, ok := l.m[key]; ok {
		return f
	}
	return failure{attempts: attempts, reason: "all attempts were used up",
		err: errors.New("the last attempt's own error is unknown here: its process died, or its dead letter could not be stored; see that member's log")}
}

func (l *lastFailures) forget(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.m, key)
}
