package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	lineOnTerminal = 250 * time.Millisecond
	lineElsewhere  = time.Second
	// eraseLine moves to the first column and clears to the end of the line.
	eraseLine = "\r\x1b[K"
)

// screen writes lines, and below them one line that is kept up to date: rewritten on a
// terminal, written every second elsewhere.
type screen struct {
	out      io.Writer
	terminal bool
	begun    time.Time

	mu     sync.Mutex
	shown  bool // a line that the next output erases
	cancel context.CancelFunc
	done   chan struct{}
}

func newScreen(out io.Writer, terminal bool) *screen {
	return &screen{out: out, terminal: terminal, begun: time.Now()}
}

// printf writes a line of its own.
func (s *screen) printf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	text := fmt.Sprintf(format, args...)
	if strings.HasPrefix(text, "- ") || strings.HasPrefix(text, "! ") {
		text = fmt.Sprintf("%s %s", s.clock(), text)
	}
	_, _ = fmt.Fprintln(s.out, text)
}

func (s *screen) clock() string { return fmt.Sprintf("%5.1fs", time.Since(s.begun).Seconds()) }

func (s *screen) erase() {
	if s.shown {
		_, _ = io.WriteString(s.out, eraseLine)
		s.shown = false
	}
}

// startLine shows what text returns until stopLine or the end of ctx.
func (s *screen) startLine(ctx context.Context, text func(context.Context) string) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	s.mu.Lock()
	s.cancel, s.done = cancel, done
	s.mu.Unlock()
	every := lineElsewhere
	if s.terminal {
		every = lineOnTerminal
	}
	go func() {
		defer close(done)
		for pause(ctx, every) == nil {
			if line := text(ctx); line != "" && ctx.Err() == nil {
				s.line(line)
			}
		}
	}()
}

func (s *screen) line(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.terminal {
		_, _ = fmt.Fprintf(s.out, "%s   %s\n", s.clock(), text)
		return
	}
	_, _ = fmt.Fprintf(s.out, "%s%s   %s", eraseLine, s.clock(), text)
	s.shown = true
}

// stopLine ends the line, if there is one.
func (s *screen) stopLine() {
	s.mu.Lock()
	cancel, done := s.cancel, s.done
	s.cancel, s.done = nil, nil
	s.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	<-done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
}
