package db

import "time"

// WithLifetime replaces connections after another time than ours.
func WithLifetime(d time.Duration) Option { return func(s *settings) { s.lifetime = d } }
