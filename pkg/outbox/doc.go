// Package outbox carries events from a business transaction to a broker without
// losing one. Business code appends a row to outbox_event in its own transaction;
// the relay alone publishes the row and marks it. Neither knows which broker that is.
//
// # Identity
//
// event_id names the event and is unique; business code makes it (package event), and
// consumers recognise repeats by it. id names the row. Both stay for ever: a requeue
// sends the same event again under the same event_id.
//
// # States
//
//	            append
//	              │
//	              ▼          broker confirmed
//	┌───────▶ PENDING ───────────────────────▶ PUBLISHED ──14 days──▶ purged
//	│          ▲  │  │                             │
//	│   backed │  │  │ refused for good, or        │
//	│   off by └──┘  │ its attempts are used up    │ requeue (a person)
//	│   available_at ▼                             │
//	│              FAILED ──discard (a person)──▶ mq_outbox_archive
//	│                │                             │
//	└── requeue ─────┴─────────────────────────────┘
//
// There is no claimed state: the table has other writers, who know three statuses and
// no owner. A claim is a row lock and nothing else, so a relay that dies leaves
// nothing to clean up. An event that is due later waits in mq_delayed_event, where
// neither the hot index nor any other reader of the table sees it; the relay moves it
// into outbox_event when it is due.
//
// # A pass
//
//	BEGIN ─▶ claim: SELECT … FOR UPDATE SKIP LOCKED ─▶ publish, with a deadline
//	      ─▶ mark: one UPDATE by primary keys AND status = 'PENDING' ─▶ COMMIT
//
// Only rows that the broker confirmed are marked. The row locks span the publish: at
// READ COMMITTED they make no INSERT wait, and they are what keeps a second relay off
// these rows. A crash anywhere before COMMIT leaves the rows PENDING: the next pass
// sends them again, at most one batch, with the same event_ids. While a backlog is worked
// off, the next batch is claimed on a second connection during the publish, and sent
// while the server commits the one before. It is marked when that COMMIT is known. So one
// batch at most is sent and not marked; when a COMMIT fails, or never reaches the server,
// two are sent again.
//
// # Who works
//
// A relay works while it holds one of the leases outbox-relay:0 … N-1 (N is 1 unless
// configured). Others stand by and take over a lease that ran out. Lease and row locks
// guard independently of each other: with the lease broken, SKIP LOCKED still gives
// every row to one relay; with row locks broken, the lease still lets one relay work.
//
// publish deadline < pass deadline < session timeouts < lease. A relay that is frozen
// therefore loses, in this order: its right to send (the pass deadline, on the
// monotonic clock, is checked before every send), its row locks (the server ends a
// session whose client is silent, also in the middle of a result), its lease
// (Config.TakeoverBound). When it thaws it can finish the one send that it was in, and
// it marks nothing: its transaction is gone.
//
// # Where it looks
//
// Marked rows leave delete-marked entries at the head of the index (status,
// created_at), which every scan from the head walks over until the server has purged
// them. So the relay looks at three places:
//
//   - the tail, the last seconds before NOW, every 1 to 3 ms while events arrive and less
//     often the longer none does, down to every 250 ms, by a plain SELECT without a
//     transaction;
//   - the whole queue, by a sweep without bounds: every second while it finds rows, every
//     five otherwise, and never more than a fifth of the time (a twentieth beside a
//     backlog). It finds what appears
//     further down: committed late, requeued, backed off, written by a clock that is
//     behind;
//   - a backlog, when a sweep comes back full: by a window with both bounds that moves
//     from the oldest row to the tail, while the tail goes on beside it.
//
// Correctness rests on the sweep alone; tail and window are about speed.
//
// # Failures
//
// What a failed send does to a row depends on whose fault it is:
//
//   - Broker unreachable, silent or throttling: no row is touched. The relay backs off
//     and says so in seahub_outbox_publish_failing. However long it lasts, no event
//     turns FAILED.
//   - Refused for good (too large, illegal): FAILED at once, with last_error.
//   - Failed while the broker confirmed another event in the same batch or in the last
//     10 s: the fault is the event's. retry_count + 1, available_at by back-off with
//     jitter, FAILED after the configured attempts.
//   - Failed while the broker confirmed nothing: counts as an outage.
//   - Without an answer, alone in its batch, after every larger batch with it had none
//     while what stands behind it was confirmed each time: the fault is the event's, too
//     (suspect.go).
//
// FAILED rows wait for a person. Nothing but a person ever discards an event.
package outbox
