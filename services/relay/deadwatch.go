package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seahub/seahub-mq/pkg/backoff"
	"github.com/seahub/seahub-mq/pkg/outbox"
)

// deadWatchEvery is how old the figure may be.
const deadWatchEvery = 15 * time.Second

// deadWatch exports how many dead letters wait for a person.
type deadWatch struct {
	store *outbox.DeadLetterStore
	open  *prometheus.GaugeVec
	every time.Duration
	seen  map[string]bool // groups that ever had one; of run alone
}

func newDeadWatch(pool *sql.DB, reg prometheus.Registerer) (*deadWatch, error) {
	w := &deadWatch{store: outbox.NewDeadLetterStore(pool), every: deadWatchEvery, seen: map[string]bool{}, open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "seahub_dead_letters_open",
		Help: "Dead letters that wait for a replay or a discard. A group that never had any, and all of them while the database does not answer, are absent.",
	}, []string{"consumer_group"})}
	return w, reg.Register(w.open)
}

// run looks until ctx ends. A group whose letters were all resolved shows 0.
func (w *deadWatch) run(ctx context.Context) {
	for {
		look, cancel := context.WithTimeout(ctx, w.every)
		counts, err := w.store.OpenByGroup(look)
		cancel()
		w.show(counts, err)
		if !backoff.Sleep(ctx, w.every) {
			return
		}
	}
}

func (w *deadWatch) show(counts map[string]int64, err error) {
	w.open.Reset()
	if err != nil {
		return // unknown is not what it was
	}
	for g := range counts {
		w.seen[g] = true
	}
	for g := range w.seen {
		w.open.WithLabelValues(g).Set(float64(counts[g]))
	}
}
