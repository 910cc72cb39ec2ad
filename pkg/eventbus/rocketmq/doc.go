// Package rocketmq is the event bus on RocketMQ 4.x, by the community client for Go.
//
// # Sending
//
// Single messages, several at a time, since Alibaba Cloud takes no batches. Only the
// status "send ok" confirms. A send, once begun, is never cancelled: the client would
// send the message again and tear down the connection that others use; a caller whose
// deadline passes gets Unavailable, which means "may be stored". When the broker asks
// for a slower pace all sends of the driver pause, and are answered Throttled.
//
// # Receiving
//
// Run asks the broker first for all that the client would find out never (topic, group,
// key, permission, what other members want) and says what is missing by Connected. Then
// it keeps one member of the group, the client's push consumer, at work, looks at it
// from outside, and makes a new one when the broker does not know it any more or a queue
// stands still. A stop drains before the client's Shutdown, which waits for nobody, and
// holds back what no callback has started until after it: no attempt is spent.
//
// A retry waits for the next longer of the broker's delay levels (Levels).
//
// # Files
//
// driver.go, send.go, pace.go, classify.go: sending. run.go, member.go, delivery.go,
// watch.go, leave.go, quiet.go: one subscription, from its start to its end. inspect.go:
// figures and provisioning. log.go: the client's globals.
//
// What differs from the other broker is in docs/brokers.md. Package remoting asks what
// the client cannot.
package rocketmq
