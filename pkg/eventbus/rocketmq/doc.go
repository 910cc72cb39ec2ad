// Package rocketmq is the event bus on RocketMQ 4.x, by the community client for Go.
//
// It shows that package driver fits a broker that pushes: Receiver.Run wraps the
// client's push consumer, Sender sends single messages at the same time, since
// Alibaba Cloud does not take batches.
//
// What the client does differently from what one would expect decides its form:
//
//   - A cancelled context makes the client send a message again and tears down the
//     connection that others use. So a send, once begun, is never cancelled; a caller
//     whose deadline passes gets Unavailable and the send ends on its own.
//   - The client changes a message while it sends it. So each send has a message of
//     its own, with a copy of the body.
//   - A nil error is not a confirmation: only the status "send ok" is.
//   - The client's Shutdown does not wait for handlers and ignores their results. So
//     Run drains first, and holds back results that would come too late.
//   - A handler that panics keeps its queue from advancing. So the callback recovers,
//     though package eventbus does before it.
//
// # What is proven and what is not
//
// The package compiles against the pinned client and its pure parts are tested. It has
// not been run against a broker: the conformance kit of package eventbustest has not
// judged it yet. In particular, these are as the client documents them and no more:
// redelivery after a broker restart, delays of retries (the broker knows fixed levels,
// the next greater one is taken), and the drain. The Inspector knows nothing: every
// figure is unknown. Topics and groups are made by a person, so there is no
// Provisioner. A consumer whose group does not exist or may not be read gets nothing
// and no error: the client does not tell.
package rocketmq
