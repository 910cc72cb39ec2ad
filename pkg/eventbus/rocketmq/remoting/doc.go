// Package remoting asks RocketMQ questions that its Go client can't: where a
// topic's queues are, how far a group has read them, who is in the group. It is
// read-only but for provision.go, and holds no consumer and no producer.
//
// # Protocol
//
// One TCP connection carries frames in both directions:
//
//	int32 length of all that follows
//	int32 length of the header; its top byte is the header's form, 0 = JSON
//	header {code, language, version, opaque, flag, remark, extFields}
//	body
//
// A response has the request's opaque and bit 0 of flag set; its code is 0 when
// the request was carried out. Arguments and most answers are strings in
// extFields. A name server knows where topics are (105); everything else is asked
// at the broker that holds the queue: the offset that a group has committed (14),
// the next offset to be written (30), the oldest one still there (31), the offset
// at a time (29), one message (11), the members of a group (38) and what they want (203).
//
// With an access key each request carries the key and a signature: HMAC-SHA1 over
// the values of extFields in the order of their names, and the body.
//
// # Bounds
//
// A call takes Config.CallTimeout at most, or less if its context ends first. A
// connection serves one call at a time, is reused while it is young, and belongs
// to the Client: there are no goroutines. A request that found a reused
// connection closed is repeated once on a new one; all requests can be repeated.
//
// # What can go wrong
//
// ErrUnreachable: nobody listens, or the connection broke. ErrSilent (which is an
// ErrUnreachable too): the address takes connections and answers nothing.
// ErrTopicMissing: the name servers know no such topic. ErrDenied (which is an
// ErrRefused too): wrong key, or no permission. Any other refusal is an
// ErrRefused; Refusal has its code. A managed cluster may refuse some codes to its
// tenants, so a figure that could not be learned is unknown, and never zero. Version
// 4 lets any known key ask for offsets; version 5 wants the permission GET on topic
// and group for it, which neither publishing nor consuming needs. The age of a
// message and the members of a group take the permission to consume on both.
package remoting
