package main

import (
	"fmt"
	"strconv"
	"time"
)

// Units of figures.
const (
	unitRows    = "rows"
	unitSeconds = "seconds"
	unitState   = "state" // 1 or 0
	unitShare   = "share" // of one
)

// Where a figure comes from.
const (
	sourceSQL    = "sql"
	sourceEvents = "events"
	sourcePipe   = "pipe"
)

// figure is one measured value. Value is nil while it is unknown, which is never zero;
// Note then says why.
type figure struct {
	Name    string
	Subject string
	Value   *float64
	Unit    string
	Source  string
	Note    string
	Task    string
	origin
}

// origin is the event that stands behind a figure: the oldest of those it is about.
type origin struct {
	EventID, TraceID, RequestID string
}

// known makes a figure of a value.
func known(name, subject, unit string, v float64) figure {
	return figure{Name: name, Subject: subject, Unit: unit, Source: sourcePipe, Value: &v}
}

// unknown makes a figure that could not be measured.
func unknown(name, subject, unit string, why error) figure {
	return figure{Name: name, Subject: subject, Unit: unit, Source: sourcePipe, Note: why.Error()}
}

// show is a value for people.
func show(v *float64, unit string) string {
	if v == nil {
		return "unknown"
	}
	switch unit {
	case unitSeconds:
		return time.Duration(*v * float64(time.Second)).Round(100 * time.Millisecond).String()
	case unitShare:
		return fmt.Sprintf("%.0f %%", *v*100)
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}

// floorMinute and ceilMinute cut an instant to the minute. Zones of the app differ from
// UTC by whole minutes.
func floorMinute(t time.Time) time.Time { return t.Truncate(time.Minute) }

func ceilMinute(t time.Time) time.Time {
	if f := floorMinute(t); !f.Equal(t) {
		return f.Add(time.Minute)
	}
	return t
}
