// Package demo plays one story on a stack of its own: pushes from business transactions
// to FCM, coupons that come due, campaigns that are synced, with a fault of each kind in
// the middle of which people hear in Feishu, and the books at the end. The story is in
// faults.go, the judgement in package books.
package demo
