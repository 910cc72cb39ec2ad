package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seahub/seahub-mq/pkg/eventbus/driver"
)

type name struct{}

var errTaken = errors.New("taken by another")

func lazy(parent context.Context, deadline time.Time) *driver.Lazy {
	var c driver.Lazy
	c.Init(parent, deadline)
	return &c
}

// Whatever ends a Lazy, it says the same as the standard library's context would,
// asked before its end or only after it, and so does a context that is made of it.
func TestLazyIsLikeAnyContext(t *testing.T) {
	past, future := time.Now().Add(-time.Second), time.Now().Add(time.Hour)
	for _, c := range []struct {
		name       string
		deadline   time.Time
		end        func(c *driver.Lazy, parent context.CancelCauseFunc)
		err, cause error
	}{
		{"nothing", future, func(*driver.Lazy, context.CancelCauseFunc) {}, nil, nil},
		{"no deadline", time.Time{}, func(*driver.Lazy, context.CancelCauseFunc) {}, nil, nil},
		{"deadline", past, func(*driver.Lazy, context.CancelCauseFunc) {}, context.DeadlineExceeded, context.DeadlineExceeded},
		{"release", future, func(c *driver.Lazy, _ context.CancelCauseFunc) { c.End(nil) }, context.Canceled, context.Canceled},
		{"cause", future, func(c *driver.Lazy, _ context.CancelCauseFunc) { c.End(errTaken) }, context.Canceled, errTaken},
		{"parent", future, func(_ *driver.Lazy, parent context.CancelCauseFunc) { parent(errTaken) }, context.Canceled, errTaken},
	} {
		for _, before := range []bool{false, true} {
			parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), name{}, "v"))
			outer := lazy(parent, time.Time{})
			ctx := lazy(outer, c.deadline)
			if before {
				ctx.Done()
			}
			if c.name == "cause" {
				c.end(outer, cancel) // the cause of an outer one reaches the inner one
			} else {
				c.end(ctx, cancel)
			}
			if err := ctx.Err(); err != c.err {
				t.Errorf("%s, asked before %v: error %v, want %v", c.name, before, err, c.err)
			}
			if cause := context.Cause(ctx); cause != c.cause {
				t.Errorf("%s, asked before %v: cause %v, want %v", c.name, before, cause, c.cause)
			}
			child, stop := context.WithCancel(ctx)
			ended := child.Err() != nil
			select {
			case <-ctx.Done():
			default:
				ended = ended || c.err != nil
			}
			if ended != (c.err != nil) || child.Err() != c.err || context.Cause(child) != c.cause {
				t.Errorf("%s, asked before %v: a child has error %v, cause %v", c.name, before, child.Err(), context.Cause(child))
			}
			if child.Value(name{}) != "v" {
				t.Errorf("%s: the parent's values are gone", c.name)
			}
			stop()
			ctx.End(nil)
			outer.End(nil)
			cancel(nil)
		}
	}
}

func TestLazyEndsAtTheEarlierDeadline(t *testing.T) {
	soon, late := time.Now().Add(20*time.Millisecond), time.Now().Add(time.Hour)
	parent, cancel := context.WithDeadline(t.Context(), soon)
	defer cancel()
	ctx := lazy(parent, late)
	defer ctx.End(nil)
	if d, ok := ctx.Deadline(); !ok || !d.Equal(soon) {
		t.Errorf("deadline %v %v, want the parent's", d, ok)
	}
	own := lazy(t.Context(), soon)
	defer own.End(nil)
	<-own.Done()
	if d, ok := own.Deadline(); !ok || !d.Equal(soon) || own.Err() != context.DeadlineExceeded {
		t.Errorf("deadline %v %v, error %v", d, ok, own.Err())
	}
}
