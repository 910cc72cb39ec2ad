// Package redisstreams is the event bus on Redis Streams, for local work and tests.
// It needs Redis 6.2 or later, in single, Sentinel or Cluster form, with
// maxmemory-policy noeviction.
//
// # Keys
//
// The topic beex-<country>-events is the stream beex:<env>:events. Each entry has the
// fields tag, key, body and headers, the last as one field. Beside the stream, in the
// same Cluster slot:
//
//	{beex:<env>:events}:due:<group>      sorted set: when each parked message is due
//	{beex:<env>:events}:members:<group>  hash: when each member was last heard of
//	{beex:<env>:events}:trim             lock: one member trims at a time
//
// # A message's way
//
// A group begins at the start of the stream. A member reads with XREADGROUP, as many
// messages as it has free workers, and from then on holds a lease: it renews the idle
// time of what it has in hand every third of Config.Lease, each time checking that it
// still is the owner. Done is XACK. A retry is parked: the message changes hands to
// the reserved consumer "parked", and a sorted set says when it is due. Whatever
// member sees it due first hands it out again. What a dead member held becomes idle
// and goes to a sibling after the lease.
//
// Nothing is held in a member's memory alone. A member that stops politely parks what
// no handler has started, due at once and without spending an attempt.
//
// # What Redis can lose
//
// Redis acknowledges before a replica has the entry, and a restart without persistence
// loses the stream. Group and stream are then made again at the start, which is
// counted (seahub_redis_group_recreated_total) and logged; the outbox can publish the
// time in question again (relay requeue), and consumers recognise repeats. What a
// failover lost is not told by Redis; docs/operations-redis.md has the figures and the
// setting that bounds them.
//
// Nothing is published to a server whose maxmemory-policy may evict the stream, unless
// Config.AllowEviction says so; other unsafe settings are warned about (Warnings, and
// the gauge seahub_redis_unsafe_setting).
//
// # When it is back
//
// A server that is silent is noticed after Config.Block and Config.Timeout. Once it
// answers, a subscription is served after at most these and two seconds of back-off,
// without a restart, whatever the server has forgotten meanwhile. What a dead member
// had in hand goes to others after four thirds of Config.Lease. A server whose memory
// is used up refuses events; consuming goes on, also for members that start then, and
// trimming frees what is finished and older than Config.Retention. Once there is memory
// it takes events again at once; retries that could not be scheduled meanwhile are found
// within 15 seconds.
//
// The stream is trimmed behind the slowest group, never below Config.Retention, and
// cut at Config.MaxLen whatever is unread: Redis without memory takes no event at all.
package redisstreams
