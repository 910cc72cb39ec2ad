// Package testenv gives tests, the demo and the benchmarks real servers:
// MariaDB, MySQL, Redis and RocketMQ. Nothing here imitates a server; the strict
// imitations of outside systems are in packages of their own below it.
//
// In a test package:
//
//	func TestMain(m *testing.M) { testenv.Main(m) }
//
//	func TestStore(t *testing.T) {
//		testenv.SQLServers(t, func(t *testing.T, s *testenv.Schema) {
//			s.LoadApp(t)
//			...
//		})
//	}
//
// MariaDB, MySQL, Redis and RocketMQ return a fresh schema or name on a server that
// the tests of one process share; it starts on first use and Main stops it, before
// it looks for leaked goroutines. A test that kills, freezes or restarts its
// server takes one of its own: PrivateMariaDB, PrivateMySQL, PrivateRedis,
// PrivateRocketMQ. A server that cannot be had fails the test, and never skips it.
//
// A plain program (dev/stack) uses StartMariaDB, StartMySQL, StartRedis and
// StartRocketMQ, which need no testing package. StartChild runs a program under test by the same
// rules as a server.
//
// The protocol of a started server, in order:
//
//  1. A port is chosen below the ephemeral range and reserved for the life of
//     the Server, so that nobody takes it while the server is stopped.
//  2. The server is started as a child, from one thread that never ends, in a
//     process group of its own, with a death signal: it cannot outlive us, and a
//     Ctrl-C meant for us reaches it only through us.
//  3. We ask whoever answers at the port who it is (its process id, its data
//     folder), or the kernel where a server can't say that. Nothing is written before the answer is "your child"; a port that
//     someone else answers is given up for another.
//  4. It is stopped by the pid that we started, first politely, then for good.
//  5. Close removes its folder.
//
// Servers that run already are used instead when SEAHUB_TEST_MARIADB_DSN,
// SEAHUB_TEST_MYSQL_DSN (user:password@tcp(host:port)/), SEAHUB_TEST_REDIS_ADDR
// (host:port) or SEAHUB_TEST_ROCKETMQ_ADDR (host:port of a name server, with
// SEAHUB_TEST_ROCKETMQ_ADMIN=accesskey:secretkey unless another process's
// StartRocketMQ made it) is set; they can not be faulted, so tests that need a
// server of their own still start one. A RocketMQ costs some seconds and 300 MB, so
// whoever tests many packages at once starts one for all of them.
//
// Linux only: the death signal is.
package testenv
