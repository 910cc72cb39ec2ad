// Package service is the life of a process: it parses the configuration, sets up
// logs, metrics and the admin listener, runs the loops of the service and stops them.
// It knows no other room; a service's main.go joins the rooms.
//
// # Command line
//
//	<service>              run (the same as `<service> run`)
//	<service> config       print the effective configuration, secrets hidden
//	<service> config keys  print every key, its default and its meaning
//	<service> version      print version and build
//
// and what the service adds. Exit codes: 0 ended well, 1 failed, 2 called or
// configured wrongly (nothing was touched).
//
// # Life
//
//	parse, report all configuration errors at once ──▶ Run wires the rooms
//	──▶ loops go (Process.Go) ──▶ SIGTERM or SIGINT, or a loop fails
//	──▶ not ready; the loops' context ends; each loop stops fetching and drains
//	──▶ OnStop functions in reverse order ──▶ exit
//
// Loops have DrainTimeout for their own drain; a process that is not down after
// DrainTimeout plus a margin, or that is told a second time to stop, ends at once.
//
// # Health
//
// /livez is about this process alone: each loop's heartbeat is younger than its
// limit. It does no I/O, so that an outage elsewhere restarts nothing. /readyz asks
// the checks that the rooms registered, also without I/O: 503 only where the active
// path cannot work, 200 with reasons where it works in a lesser way. /metrics and
// /version are beside them, /debug/pprof when asked for.
package service
